"""Muon for the encoder's matrices, AdamW for everything else (Jordan et al. 2024).

A matrix moves along its momentum with all singular values brought near 1, so no direction of the
update is small beside another.  The update is scaled to the size of AdamW's: 0.2 times the root of
the longer side (Liu et al. 2025, "Muon is scalable for LLM training").  So one learning rate and
one weight decay serve both.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any, Final

import torch
from torch import Tensor, nn

from tidybert.modeling.kernels.linear import Linear
from tidybert.training.sharding import placed_like, whole

# Coefficients of the quintic that brings singular values near 1 in five rounds.
_COEFFICIENTS: Final = (3.4445, -4.7750, 2.0315)
_ROUNDS: Final = 5
_MOMENTUM: Final = 0.95


class MuonAdamW(torch.optim.Optimizer):
    """Muon over ``stacked`` matrices, AdamW over ``adamw``'s parameters.

    Args:
        stacked: lists of matrices, each with the number of equal blocks one above the other in a
            matrix: three where queries, keys and values come from one product.
        adamw: an optimizer over all other parameters.
        learning_rate: the rate of the first step; the groups hold it, as in any optimizer.
        weight_decay: decoupled decay of the matrices.
    """

    def __init__(
        self,
        stacked: Iterable[tuple[list[Tensor], int]],
        adamw: torch.optim.AdamW,
        *,
        learning_rate: float,
        weight_decay: float,
    ) -> None:
        settings = {"lr": learning_rate, "weight_decay": weight_decay}
        matrices = [
            {"params": parameters, "num_blocks": num_blocks, **settings}
            for parameters, num_blocks in stacked
        ]
        # Both optimizers have the same group objects, so a rate set here holds for AdamW too.
        super().__init__([*matrices, *adamw.param_groups], {})
        self._matrices = self.param_groups[: len(matrices)]
        self._adamw = adamw
        adamw.state = self.state

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        assert closure is None
        self._adamw.step()
        for group in self._matrices:
            by_shape: dict[torch.Size, list[Tensor]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_shape.setdefault(parameter.shape, []).append(parameter)
            for alike in by_shape.values():
                self._update(alike, group)

    def _update(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        """One step of matrices of one shape; their products run together."""
        directions = []
        for parameter in parameters:
            gradient = parameter.grad
            assert gradient is not None
            state = self.state[parameter]
            if "momentum" not in state:
                state["momentum"] = torch.zeros_like(parameter)
            momentum = state["momentum"].mul_(_MOMENTUM).add_(gradient)
            # Nesterov's look ahead; the product needs whole matrices, not shards.
            directions.append(whole(gradient.add(momentum, alpha=_MOMENTUM)))
        rows, columns = parameters[0].shape
        blocks = torch.stack(directions).view(-1, rows // group["num_blocks"], columns)
        updates = orthogonalized(blocks).view(-1, rows, columns)
        scale = 0.2 * math.sqrt(max(blocks.shape[1:]))
        for parameter, update in zip(parameters, updates, strict=True):
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            parameter.add_(placed_like(update, parameter), alpha=-group["lr"] * scale)


def muon_matrices(layers: nn.Module) -> list[tuple[list[Tensor], int]]:
    """The trained weight matrices of an encoder's layers, by the number of blocks in each."""
    found: dict[int, list[Tensor]] = {}
    for module in layers.modules():
        num_blocks = module.fused_blocks if isinstance(module, Linear) else 1
        for parameter in module.parameters(recurse=False):
            if parameter.requires_grad and parameter.dim() == 2:
                found.setdefault(num_blocks, []).append(parameter)
    return [(matrices, num_blocks) for num_blocks, matrices in found.items()]


def orthogonalized(matrices: Tensor) -> Tensor:
    """(K, M, N) with the same singular vectors, and singular values from 0.7 to 1.2.

    It computes in bfloat16 on CUDA, which is exact enough, and in float32 on a CPU, where that is
    faster.
    """
    is_tall = matrices.shape[1] > matrices.shape[2]
    found = matrices.mT if is_tall else matrices
    found = found.to(torch.bfloat16 if matrices.is_cuda else torch.float32)
    # The iteration needs singular values of at most 1.
    found = found / (found.norm(dim=(1, 2), keepdim=True) + 1e-7)
    # The Gram matrix squares singular values, for which bfloat16 has too few digits.
    is_long = found.dtype == torch.float32 and found.shape[2] >= 2 * found.shape[1]
    found = _by_the_gram_matrix(found) if is_long else _directly(found)
    return (found.mT if is_tall else found).to(matrices.dtype)


def _directly(found: Tensor) -> Tensor:
    a, b, c = _COEFFICIENTS
    for _ in range(_ROUNDS):
        gram = found @ found.mT
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        found = torch.baddbmm(found, polynomial, found, beta=a)
    return found


def _by_the_gram_matrix(found: Tensor) -> Tensor:
    """The same, with products of the short side alone except the first and the last.

    Each round multiplies the matrix from the left by a polynomial of its Gram matrix, and therefore
    the Gram matrix from both sides.
    """
    a, b, c = _COEFFICIENTS
    gram = found @ found.mT
    multiplier = torch.eye(gram.shape[1], dtype=gram.dtype, device=gram.device).expand_as(gram)
    for _ in range(_ROUNDS):
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        polynomial.diagonal(dim1=1, dim2=2).add_(a)
        multiplier = polynomial @ multiplier
        gram = polynomial @ (gram @ polynomial)
    return multiplier @ found
