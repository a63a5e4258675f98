"""Linear layers: on a CPU oneDNN's products where they are faster, and bfloat16 under autocast.

PyTorch hands float32 products to MKL, which uses its best kernels on Intel's processors alone.  On
an AMD EPYC with AVX-512, oneDNN computes twice as many products a second; on an Intel Xeon it
computes a quarter to a half fewer.  PyTorch ships both.

Under a CPU's autocast linear layers multiply in bfloat16, but take and return float32: whatever
lies between products then loses no digits and uses float32 kernels.  Other products are small, and
their float32 kernels are the fast ones: ``float32_on_a_cpu``.

T rows, I inputs, O outputs, V rows of a table, H width.
"""

import os
import platform
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

P = ParamSpec("P")
R = TypeVar("R")

# oneDNN keeps kernels and work space for a thousand different numbers of rows: 300 MiB more in a
# hundred steps of SST-2, without any gain in speed.  PyTorch's cache before it does the same in
# each thread: a server grew by a third of a MiB a text.  Both read this at their first product.
# A layer's four products in the sizes of ``kernels/answer_layers.py``, and the heads, fit in.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "80")
os.environ.setdefault("LRU_CACHE_CAPACITY", "80")


def _is_amd() -> bool:
    """Whether the processor is AMD's, where MKL does not use its best kernels.

    The vendor decides, not a timing: results must not change from run to run.
    """
    try:
        # Other systems than Linux have the vendor in the processor's name.
        described = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        described = platform.processor()
    return "AuthenticAMD" in described


# The operator that torch.compile calls for the same purpose.
_ONEDNN: Any = (
    getattr(torch.ops.mkldnn, "_linear_pointwise", None)
    if torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    else None
)
_PACK: Any = getattr(torch.ops.mkldnn, "_reorder_linear_weight", None)
_PRODUCT: Any = _ONEDNN if _is_amd() else None


class Linear(nn.Linear):
    """nn.Linear by ``linear``; ``fused_blocks`` matrices lie in its weight, one above the other.

    With ``is_steady``, a row's output has the same bits in any batch: ``steady_linear``.
    """

    is_steady = False

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        keep_bfloat16: bool = False,
        fused_blocks: int = 1,
    ) -> None:
        super().__init__(in_features, out_features, bias)
        self.fused_blocks = fused_blocks
        self.keep_bfloat16 = keep_bfloat16

    def forward(self, input: Tensor) -> Tensor:
        if self.is_steady:
            return steady_linear(input, self.weight, self.bias)
        return linear(input, self.weight, self.bias, keep_bfloat16=self.keep_bfloat16)


def linear(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, *, keep_bfloat16: bool = False
) -> Tensor:
    """(T, I) times (O, I) transposed, plus (O,): (T, O), of the inputs' dtype.

    Under a CPU's autocast, float32 inputs are rounded to bfloat16 and the output is float32.
    ``keep_bfloat16`` leaves the output in bfloat16 there, for an output that only an elementwise
    function and another product read: the product would round it again.
    """
    if _bfloat16_fits(hidden, weight):
        return _BFloat16Linear.apply(hidden, weight, bias, keep_bfloat16)  # type: ignore[no-any-return,no-untyped-call]
    if not torch.is_grad_enabled() or not _onednn_fits(hidden, weight):
        return product(hidden, weight, bias)
    found: Tensor = _OneDNNLinear.apply(hidden, weight, bias)  # type: ignore[no-untyped-call]
    return found


def steady_linear(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``linear`` of float32 on a CPU, without gradients, by oneDNN.

    Its kernel for a single row adds up in another order than all others, so a lone row goes twice.
    """
    rows = hidden if len(hidden) > 1 else hidden.expand(2, -1)
    found: Tensor = _ONEDNN(rows, weight, bias, "none", [], "")[: len(hidden)]
    return found


class PackedLinear:
    """``linear`` of float32 on a CPU, without gradients, with a weight laid out for oneDNN once.

    Args:
        weight, bias: (O, I) and (O,).

    Its rows have the bits of ``linear``.  A single row takes the weight as it is, because oneDNN's
    kernel for it adds up in another order.
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self._weight, self._bias = weight.detach(), bias.detach()
        self._packed = None if _PRODUCT is None else _PACK(self._weight, None)

    def __call__(self, hidden: Tensor, added: Tensor | None = None) -> Tensor:
        """(T, I) to (T, O); plus ``added`` (T, O)."""
        if self._packed is None:
            found = functional.linear(hidden, self._weight, self._bias)
        else:
            weight = self._packed if hidden.shape[0] > 1 else self._weight
            found = _PRODUCT(hidden, weight, self._bias, "none", [], "")
        return found if added is None else found.add_(added)


def plain_linear(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The plain body of ``linear``."""
    found = hidden @ weight.T
    return found if bias is None else found + bias


def float32_on_a_cpu(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function without a CPU's autocast; on other devices nothing changes."""

    @wraps(function)
    def run(*given: P.args, **named: P.kwargs) -> R:
        with torch.autocast("cpu", enabled=False):
            return function(*given, **named)

    return run


# Autocast would round a product, and with it the embeddings' sum, to half precision.
@float32_on_a_cpu
def small_table_embedding(ids: Tensor, table: Tensor) -> Tensor:
    """(T, H): the rows of ``table`` (V, H) that ``ids`` (T,) int64 name; V is small.

    The plain body is ``table[ids]``.  A CPU multiplies by a one-hot matrix: the lookup's own
    backward adds T rows one by one.
    """
    if table.device.type != "cpu" or not torch.is_grad_enabled():
        return functional.embedding(ids, table)
    return functional.one_hot(ids, table.shape[0]).to(table.dtype) @ table


def product(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """``linear`` of tensors without gradients; both may be transposed views."""
    return _product(a, b, bias) if _onednn_fits(a, b) else functional.linear(a, b, bias)


def _onednn_fits(hidden: Tensor, weight: Tensor) -> bool:
    return (
        _PRODUCT is not None
        and hidden.device.type == "cpu"
        and hidden.dtype == weight.dtype == torch.float32
        and hidden.dim() == 2
        and hidden.shape[0] > 0
        and not torch.is_autocast_enabled("cpu")
    )


def _bfloat16_fits(hidden: Tensor, weight: Tensor) -> bool:
    return (
        hidden.device.type == "cpu"
        and hidden.dim() == 2
        and hidden.dtype in (torch.float32, torch.bfloat16)
        # FSDP gathers shards in bfloat16, those of LayerNorm too, which then refuses float32.
        and weight.dtype == torch.float32
        and torch.is_autocast_enabled("cpu")
        and torch.get_autocast_dtype("cpu") == torch.bfloat16
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


class _BFloat16Linear(torch.autograd.Function):
    """Rounds factors to bfloat16, adds products in float32, and rounds the sums once more."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, keep_bfloat16: bool
    ) -> Tensor:
        rounded, weight = hidden.bfloat16(), weight.bfloat16()
        ctx.save_for_backward(rounded, weight)
        ctx.of_hidden = hidden.dtype
        with torch.autocast("cpu", enabled=False):
            if keep_bfloat16:
                return functional.linear(rounded, weight, None if bias is None else bias.bfloat16())
            found = functional.linear(rounded, weight).float()
        return found if bias is None else found.add_(bias)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, gradient: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        hidden, weight = ctx.saved_tensors
        needs_hidden, needs_weight, needs_bias, _ = ctx.needs_input_grad
        rounded = gradient.bfloat16()
        with torch.autocast("cpu", enabled=False):
            return (
                (rounded @ weight).to(ctx.of_hidden) if needs_hidden else None,
                (rounded.t() @ hidden).float() if needs_weight else None,
                gradient.sum(0).float() if needs_bias else None,
                None,
            )
