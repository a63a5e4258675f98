"""Dropout whose random numbers cost little on a CPU.

A layer of BERT draws two random masks of (T, H) and one of the attention's size.  With one float an
element they take a seventh of a training step on two cores.  Here one 64-bit draw serves four
elements of 16 bits each.  So the probability is rounded to the nearest 1/65536, and kept elements
are scaled by the rounded one.  Draws come from torch's default generator, which
``torch.manual_seed`` sets, or from the one that ``drawing_from`` gives a thread.  T rows, H width.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

# LayerNorm, which can keep the residual stream in half precision under CUDA's autocast.
#
# Autocast returns float32 from a norm.  Each dropout, addition and norm between two products then
# moves twice the bytes, which is most of a step's time outside products (as MosaicBERT, Portes et
# al.  2023, and ModernBERT, Warner et al.  2024, found).  Half precision costs half a percent of
# the loss of a small model (benchmarks/NOTES.md), so a model has it only where a recipe asks for
# it.


class LayerNorm(nn.LayerNorm):
    """nn.LayerNorm of rows (T, H).

    With ``keeps_half``, its output has the dtype of CUDA's autocast, with float32 statistics.
    """

    keeps_half = False

    def forward(self, input: Tensor) -> Tensor:
        if not (self.keeps_half and input.is_cuda and torch.is_autocast_enabled("cuda")):
            return super().forward(input)
        dtype = torch.get_autocast_dtype("cuda")
        with torch.autocast("cuda", enabled=False):
            # The kernel takes one dtype; it adds up in float32.
            weight, bias = self.weight.to(dtype), self.bias.to(dtype)
            return functional.layer_norm(
                input.to(dtype), self.normalized_shape, weight, bias, self.eps
            )


def keep_half_residual(model: nn.Module) -> None:
    """Have every LayerNorm of the model keep half precision."""
    for module in model.modules():
        if isinstance(module, LayerNorm):
            module.keeps_half = True


_RESOLUTION = 65536
_of_this_thread = threading.local()


@contextmanager
def drawing_from(generator: torch.Generator) -> Iterator[None]:
    """Within it, this thread draws its float32 masks on the CPU from ``generator``.

    Threads that share the default one would get other numbers in each run.
    """
    _of_this_thread.generator = generator
    try:
        yield
    finally:
        del _of_this_thread.generator


def keep_mask(shape: torch.Size, probability: float) -> tuple[Tensor, float]:
    """A float32 mask on the CPU, 1 to keep and 0 to drop, and the scale of what is kept."""
    dropped = min(round(probability * _RESOLUTION), _RESOLUTION - 1)
    count = shape.numel()
    draws = torch.empty((count + 3) // 4, dtype=torch.int64)
    draws.random_(-(2**63), None, generator=getattr(_of_this_thread, "generator", None))
    threshold = dropped - _RESOLUTION // 2
    values = draws.numpy().view("int16")[:count]
    mask = torch.from_numpy((values >= threshold).view("uint8"))
    return mask.view(shape).float(), _RESOLUTION / (_RESOLUTION - dropped)


class _DropoutAddOnCuda(torch.autograd.Function):
    """Two launches instead of three, and one pass less over the rows."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, residual: Tensor, probability: float) -> Tensor:
        mask = torch.empty_like(hidden, dtype=torch.bool).bernoulli_(1.0 - probability)
        ctx.save_for_backward(mask)
        ctx.scale = 1.0 / (1.0 - probability)
        return torch.addcmul(residual, hidden, mask, value=ctx.scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        (mask,) = ctx.saved_tensors
        (gradient,) = gradients
        return torch.ops.aten.native_dropout_backward(gradient, mask, ctx.scale), gradient, None


class _DropoutAdd(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, residual: Tensor | None, probability: float) -> Tensor:
        mask, scale = keep_mask(hidden.shape, probability)
        ctx.save_for_backward(mask)
        ctx.scale = scale
        ctx.has_residual = residual is not None
        if residual is None:
            return hidden.mul(mask).mul_(scale)
        return torch.addcmul(residual, hidden, mask, value=scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None, None]:
        (mask,) = ctx.saved_tensors
        (gradient,) = gradients
        residual_gradient = gradient if ctx.has_residual else None
        return (gradient * mask).mul_(ctx.scale), residual_gradient, None


def dropout(hidden: Tensor, probability: float, training: bool) -> Tensor:
    """Zero elements with ``probability`` and scale the rest; ``hidden`` itself in evaluation."""
    return _dropped(hidden, None, probability) if training and probability > 0.0 else hidden


def dropout_add(hidden: Tensor, residual: Tensor, probability: float, training: bool) -> Tensor:
    """``residual + dropout(hidden)`` in one pass; shapes (T, H)."""
    if not training or probability == 0.0:
        return residual + hidden
    return _dropped(hidden, residual, probability)


def plain_dropout_add(hidden: Tensor, residual: Tensor, probability: float) -> Tensor:
    """The plain body of ``dropout_add``, and of ``dropout`` where ``residual`` is 0."""
    mask, scale = keep_mask(hidden.shape, probability)
    return residual + hidden * mask * scale


def _dropped(hidden: Tensor, residual: Tensor | None, probability: float) -> Tensor:
    if hidden.device.type == "cpu" and hidden.dtype == torch.float32:
        return _DropoutAdd.apply(hidden, residual, probability)  # type: ignore[no-any-return,no-untyped-call]
    # A compiler fuses the plain operations by itself.
    if hidden.is_cuda and residual is not None and not torch.compiler.is_compiling():
        return _DropoutAddOnCuda.apply(hidden, residual, probability)  # type: ignore[no-any-return,no-untyped-call]
    dropped = functional.dropout(hidden, probability)
    return dropped if residual is None else residual + dropped
