"""Linear layers; on AMD's processors, in float32, their products run in oneDNN.

PyTorch hands float32 products to MKL, which uses its best kernels on Intel's processors alone: on
an AMD EPYC with AVX-512 oneDNN, which PyTorch carries too, does twice as many a second, and on an
Intel Xeon a quarter to a half fewer.  T rows, I inputs, O outputs.
"""

import os
import platform
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

# Every number of rows has kernels and work space of its own, and oneDNN keeps a thousand of them:
# 300 MiB more in a hundred steps of SST-2, for no speed.  It reads this at its first product.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "32")


def _is_amd() -> bool:
    """Whether this is a processor of AMD's, on which MKL does without its best kernels.

    The vendor decides and no timing does, as results must not change from run to run.
    """
    try:
        # Linux has it here; other systems tell it as the processor's name.
        described = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        described = platform.processor()
    return "AuthenticAMD" in described


# The operator that torch.compile calls for the same purpose.
_PRODUCT: Any = (
    getattr(torch.ops.mkldnn, "_linear_pointwise", None)
    if torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    and _is_amd()
    else None
)


class Linear(nn.Linear):
    """nn.Linear by ``linear``."""

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


def linear(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """(T, I) times (O, I) transposed, plus (O,): (T, O)."""
    if not torch.is_grad_enabled() or not _onednn_fits(hidden, weight):
        return product(hidden, weight, bias)
    found: Tensor = _OneDNNLinear.apply(hidden, weight, bias)  # type: ignore[no-untyped-call]
    return found


def product(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """As ``linear``, of tensors without gradients; both may be transposed views."""
    if not _onednn_fits(a, b):
        return functional.linear(a, b, bias)
    return _product(a, b, bias)


def _onednn_fits(hidden: Tensor, weight: Tensor) -> bool:
    return (
        _PRODUCT is not None
        and hidden.device.type == "cpu"
        and hidden.dtype == weight.dtype == torch.float32
        and hidden.dim() == 2
        and hidden.shape[0] > 0
        and not torch.is_autocast_enabled("cpu")
    )


def _product(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """(M, K) times (N, K) transposed, plus (N,); both may be transposed views."""
    found: Tensor = _PRODUCT(a, b, bias, "none", [], "")
    return found


class _OneDNNLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(hidden, weight)
        return _product(hidden, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        hidden, weight = ctx.saved_tensors
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad
        return (
            _product(gradient, weight.t()) if needs_hidden else None,
            _product(gradient.t(), hidden.t()) if needs_weight else None,
            gradient.sum(0) if needs_bias else None,
        )
