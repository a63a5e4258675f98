"""AdamW without decay on biases and LayerNorm, Muon, and the linear schedule (optimization.py)."""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from tidybert.data.batching import Batch
from tidybert.modeling.architectures import encoder_of
from tidybert.modeling.kernels.dropout import drawing_from
from tidybert.modeling.kernels.linear import Linear, WeightGradients
from tidybert.modeling.kernels.threads import map_on_threads
from tidybert.training.determinism import DefaultDraws
from tidybert.training.distributed import Processes, own_part, placed_like, whole
from tidybert.training.training_arguments import TrainingArguments

# A batch's gradient on a CPU, in pieces that run side by side, each on its own thread.
#
# A fine-tuning batch has some hundred tokens, and operations of that size gain little from a second
# thread; a second piece of the batch keeps that thread busy.  Each piece has its own gradients,
# which are added in the order of the pieces, and its own generator for dropout.  So the same pieces
# give the same bits, however the threads take turns.

Gradients = Sequence[Tensor | None]

# Up to so many in a batch, the factors of its weights' gradients take less memory than a second
# set of gradients.
_FEW_TOKENS: Final = 1024


def add_gradients_on_threads(
    loss: Callable[[Batch], Tensor],
    pieces: Sequence[Batch],
    trained: Sequence[Tensor],
    generator: torch.Generator,
    *,
    watch: bool = False,
) -> float | None:
    """Add the gradient of the pieces' summed loss to ``grad`` of the trained tensors; return it.

    Each piece's dropout draws from a generator of its own, whose seed comes from ``generator``.
    ``loss`` must not draw from PyTorch's own: pieces would take its numbers in another order in
    each run.  If ``watch`` is set and it does, returns None and changes nothing.
    """
    before = generator.get_state(), torch.get_rng_state()
    seeds = torch.randint(2**63 - 1, (len(pieces),), generator=generator).tolist()

    num_tokens = sum(piece.rows.num_tokens for piece in pieces)
    left = WeightGradients(len(pieces)) if num_tokens <= _FEW_TOKENS else None

    def work(number: int) -> tuple[float, Gradients] | None:
        numbers = torch.Generator().manual_seed(seeds[number])
        with drawing_from(numbers), DefaultDraws() if watch else nullcontext() as draws:
            found = loss(pieces[number])
        if draws is not None and draws.found:
            return None
        with nullcontext() if left is None else left.of_piece(number):
            return found.item(), torch.autograd.grad(found, trained, allow_unused=True)

    results = list(map_on_threads(work, range(len(pieces))))
    done = [each for each in results if each is not None]
    if len(done) < len(results):
        generator.set_state(before[0])
        torch.set_rng_state(before[1])
        return None
    for _, gradients in done:
        add_gradients(trained, gradients)
    if left is not None:
        for found in map_on_threads(lambda work: work(), left.by_weight()):
            add_gradients(*zip(found, strict=True))
    return sum(loss for loss, _ in done)


def add_gradients(trained: Sequence[Tensor], gradients: Gradients) -> None:
    """Add each gradient to ``grad``, or make it ``grad`` where that is None."""
    begun: set[int] = set()
    sums, terms = [], []
    for each, gradient in zip(trained, gradients, strict=True):
        if gradient is None:
            continue
        if each.grad is not None:
            sums.append(each.grad)
            terms.append(gradient)
            continue
        # Autograd may return one tensor, or a part of one, as the gradient of several.
        memory = gradient.untyped_storage().data_ptr()
        is_its_own = gradient.is_contiguous() and memory not in begun
        each.grad = gradient if is_its_own else gradient.clone()
        begun.add(memory)
    if sums:
        torch._foreach_add_(sums, terms)


# Muon for the encoder's matrices, AdamW for everything else (Jordan et al. 2024).
#
# A matrix moves along its momentum with all singular values brought near 1, so no direction of the
# update is small beside another.  The update is scaled to the size of AdamW's: 0.2 times the root
# of the longer side (Liu et al.  2025, "Muon is scalable for LLM training").  So one learning rate
# and one weight decay serve both.

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
        mixed: whether the products of the matrices run in bfloat16 on a CPU too.
        processes: those that share the work; all have the same gradients.
    """

    def __init__(
        self,
        stacked: Iterable[tuple[list[Tensor], int]],
        adamw: torch.optim.AdamW,
        *,
        learning_rate: float,
        weight_decay: float,
        mixed: bool = False,
        processes: Processes | None = None,
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
        self._orthogonalized = partial(orthogonalized, mixed=mixed)
        self._processes = processes or Processes()
        adamw.state = self.state

    found_inf: Tensor | None = None
    """() float32, 1 where nothing may change; fused AdamW has the same attribute."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient, unless ``found_inf`` is 1."""
        assert closure is None
        self._adamw.found_inf = self.found_inf  # type: ignore[attr-defined]
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
        gradients, momenta = [], []
        for parameter in parameters:
            assert parameter.grad is not None
            state = self.state[parameter]
            if "momentum" not in state:
                state["momentum"] = torch.zeros_like(parameter)
            gradients.append(parameter.grad)
            momenta.append(state["momentum"])
        is_bad = self._is_bad(parameters[0].device)
        for gradient in gradients:
            own_part(gradient).masked_fill_(is_bad, 0.0)
        torch._foreach_mul_(own_parts(momenta), unless(is_bad, _MOMENTUM))
        torch._foreach_add_(own_parts(momenta), own_parts(gradients))
        # Nesterov's look ahead; the product needs whole matrices, not shards.
        directions = [
            whole(each) for each in torch._foreach_add(gradients, momenta, alpha=_MOMENTUM)
        ]
        rows, columns = parameters[0].shape
        blocks = torch.stack(directions).view(-1, rows // group["num_blocks"], columns)
        updates = self._processes.in_shares(self._orthogonalized, blocks).view(-1, rows, columns)
        # Not even by a rounding where nothing may change.
        updates = updates.masked_fill(is_bad, 0.0)
        scale = 0.2 * math.sqrt(max(blocks.shape[1:]))
        placed = [placed_like(*each) for each in zip(updates, parameters, strict=True)]
        own = own_parts(parameters)
        torch._foreach_mul_(own, unless(is_bad, 1 - group["lr"] * group["weight_decay"]))
        torch._foreach_add_(own, own_parts(placed), alpha=-group["lr"] * scale)

    def _is_bad(self, device: torch.device) -> Tensor:
        if self.found_inf is None:
            return torch.zeros((), dtype=torch.bool, device=device)
        return self.found_inf.bool()


def unless(is_bad: Tensor, factor: float) -> Tensor:
    """() float32 on its device: the factor, or 1 where ``is_bad``."""
    return torch.full((), factor, device=is_bad.device).masked_fill_(is_bad, 1.0)


def own_parts(tensors: Iterable[Tensor]) -> list[Tensor]:
    """See own_part."""
    return [own_part(each) for each in tensors]


def muon_matrices(layers: nn.Module) -> list[tuple[list[Tensor], int]]:
    """The trained weight matrices of an encoder's layers, by the number of blocks in each."""
    found: dict[int, list[Tensor]] = {}
    for module in layers.modules():
        num_blocks = module.fused_blocks if isinstance(module, Linear) else 1
        for parameter in module.parameters(recurse=False):
            if parameter.requires_grad and parameter.dim() == 2:
                found.setdefault(num_blocks, []).append(parameter)
    return [(matrices, num_blocks) for num_blocks, matrices in found.items()]


def orthogonalized(matrices: Tensor, *, mixed: bool = False) -> Tensor:
    """(K, M, N) with the same singular vectors, and singular values from 0.7 to 1.2.

    It computes in bfloat16 on CUDA and where ``mixed``, which is exact enough, else in float32.
    """
    is_tall = matrices.shape[1] > matrices.shape[2]
    found = matrices.mT if is_tall else matrices
    found = found.to(torch.bfloat16 if matrices.is_cuda or mixed else torch.float32)
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


def build_optimizer(
    model: nn.Module,
    *,
    learning_rate: float,
    betas: tuple[float, float],
    epsilon: float,
    weight_decay: float,
    with_muon: bool = False,
    mixed: bool = False,
    processes: Processes | None = None,
) -> torch.optim.Optimizer:
    """AdamW over the parameters that require gradients, in two groups: decayed and not.

    Every parameter of one dimension is a bias or belongs to LayerNorm, and is not decayed.
    ``with_muon``: Muon updates the matrices of the encoder's layers, and AdamW the rest;
    ``mixed`` lets its products run in bfloat16 on a CPU, and ``processes`` share them.
    """
    stacked = muon_matrices(encoder_of(model).layers) if with_muon else []
    others = {id(matrix) for matrices, _ in stacked for matrix in matrices}
    trained = [each for each in model.parameters() if each.requires_grad and id(each) not in others]
    adamw = torch.optim.AdamW(
        [
            {"params": [each for each in trained if each.dim() > 1], "weight_decay": weight_decay},
            {"params": [each for each in trained if each.dim() <= 1], "weight_decay": 0.0},
        ],
        lr=learning_rate,
        betas=betas,
        eps=epsilon,
        fused=True,
    )
    if not with_muon:
        return adamw
    return MuonAdamW(
        stacked,
        adamw,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        mixed=mixed,
        processes=processes,
    )


def begin_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    learning_rate: float,
    *seed: int,
    default: bool = True,
) -> torch.Generator:
    """Put the model into training mode and set the learning rate.

    It follows from ``seed``, the run's seed and the step, so that a run can resume with the
    same dropout.  PyTorch's own generators begin with the same seed if ``default`` is set.
    """
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    number = int(np.random.SeedSequence(seed).generate_state(1)[0])
    if default:
        torch.manual_seed(number)
    model.train()
    return torch.Generator().manual_seed(number)


def clip(trained: Sequence[Tensor], optimizer: torch.optim.Optimizer, most: float) -> Tensor:
    """The norm () of all gradients, of which the update takes at most ``most``.

    The plain body is torch.nn.utils.clip_grad_norm_.  On a CPU fused AdamW divides as it reads, so
    there is no pass more over all gradients.
    """
    gradients = [each.grad for each in trained if each.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    is_plain = type(norm) is Tensor and norm.device.type == "cpu" and norm.dtype == torch.float32
    if is_plain and type(optimizer) is torch.optim.AdamW:
        optimizer.grad_scale = ((norm + 1e-6) / most).clamp(min=1.0)  # type: ignore[attr-defined]
    else:
        torch.nn.utils.clip_grads_with_norm_(trained, most, norm)
    return norm


def update(optimizer: torch.optim.Optimizer, is_bad: Tensor) -> None:
    """Step, but leave weights and moments as they are where ``is_bad``, () bool, is true.

    The device decides, so the program does not wait for it.  Gradients are given up either way.
    """
    # PyTorch's fused AdamW reads this attribute; its own GradScaler skips steps so.
    optimizer.found_inf = is_bad.float()  # type: ignore[attr-defined]
    optimizer.step()
    optimizer.zero_grad()


def learning_rate_at(step: int, num_steps: int, arguments: TrainingArguments) -> float:
    """The rate of step 0, 1, …: a linear rise over the warm-up, then a linear fall to 0."""
    warmup = int(num_steps * arguments.warmup_proportion)
    if step < warmup:
        return arguments.peak_rate * step / warmup
    return arguments.peak_rate * (num_steps - step) / max(1, num_steps - warmup)
