"""Linear layers: on a CPU oneDNN's products where they are faster, and bfloat16 under autocast.

PyTorch hands float32 products to MKL, which has AVX-512 on Intel's processors alone.  On an AMD
EPYC with AVX-512, oneDNN computes twice as many products a second; on an Intel Xeon it computes a
quarter to a half fewer, and on an AMD with AVX2 alone a tenth to a fifth.  PyTorch ships both.
A row of MKL's may have other bits among few rows than among many, a row of oneDNN's has not: so
training takes the faster one, and answers take oneDNN's wherever weights are laid out.

Under a CPU's autocast linear layers multiply in bfloat16, but take and return float32: whatever
lies between products then loses no digits and uses float32 kernels.  Other products are small, and
their float32 kernels are the fast ones: ``float32_on_a_cpu``.

A CPU's product computes a number of rows from a short list, and drops the last ones.  oneDNN makes
a kernel for each number of rows, in a third of a millisecond to several.  That is as long as the
product of some hundred rows, and a batch has its own number.  Rows past the end are zeros, so they
change no other row and no sum over the rows.

T rows, P of the list, I inputs, O outputs, V rows of a table, H width.
"""

import hashlib
import os
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial, wraps
from itertools import chain
from typing import Any, Final, Literal, ParamSpec, TypeVar, get_args

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from tidybert.modeling.kernels.processor import has, is_amd, is_x86

MOST_ROWS: Final = 128
"""What lies between two products of so many rows stays in a core's cache."""
# Not 1: the kernel of a lone row adds up in another order than all others.
_SIZES: Final = (
    *(2, 4, *range(8, 64, 8), *range(64, 256, 16)),
    *(*range(256, 512, 32), *range(512, 1024, 64), *range(1024, 4097, 128)),
)
# Beyond the list a product takes so long that its kernel does not count.
_STEP: Final = 512


def size_of(count: int) -> int:
    """The number of rows that are computed of ``count``: at most 15 or an eighth more."""
    if torch.compiler.is_compiling():
        # A compiler would make a program for each size.
        return count
    place = bisect_left(_SIZES, count)
    return _SIZES[place] if place < len(_SIZES) else -(-count // _STEP) * _STEP


def filled(hidden: Tensor, size: int, dtype: torch.dtype | None = None) -> Tensor:
    """(T, I) to (P, I), with zeros at the end; rounded to ``dtype`` in the same pass."""
    count = hidden.shape[0]
    if size == count:
        return hidden if dtype is None else hidden.to(dtype)
    found = hidden.new_empty(size, hidden.shape[1], dtype=dtype or hidden.dtype)
    found[:count].copy_(hidden)
    found[count:].zero_()
    return found


def cut(hidden: Tensor, count: int) -> Tensor:
    """The rows of ``filled`` that it was given."""
    return hidden if hidden.shape[0] == count else hidden[:count]


P = ParamSpec("P")
R = TypeVar("R")

# oneDNN keeps kernels and work space for a thousand different numbers of rows: 300 MiB more in a
# hundred steps of SST-2, without any gain in speed.  PyTorch's cache before it does the same in
# each thread: a server grew by a third of a MiB a text.  Both read this at their first product.
# A training has some sixteen products in each size of ``_SIZES`` that its batches come to.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "400")
os.environ.setdefault("LRU_CACHE_CAPACITY", "80")


# The operator that torch.compile calls for the same purpose.
_ONEDNN: Any = (
    getattr(torch.ops.mkldnn, "_linear_pointwise", None)
    if torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    else None
)
_PACK: Any = getattr(torch.ops.mkldnn, "_reorder_linear_weight", None)

Products = Literal["onednn", "default"]
"""Who multiplies in float32 while a model trains; default: PyTorch's own choice, MKL on x86."""
PRODUCTS: Final[tuple[Products, ...]] = get_args(Products)


def faster_products() -> Products:
    """Those that are faster on this processor, by its flags."""
    return "onednn" if _ONEDNN is not None and is_amd() and has("AVX-512") else "default"


# Of the process: its threads share a step.
_products: Products = faster_products()


def products() -> Products:
    """Those of this process."""
    return _products


def use_products(chosen: Products) -> None:
    """Multiply by these from here on; a run that goes on takes those that it began with."""
    global _products
    _products = chosen if _ONEDNN is not None else "default"


@cache
def lays_out_float32() -> bool:
    """Whether answers in float32 take weights that oneDNN laid out, by the processor's flags.

    Up to 128 rows they are faster than MKL's products on all processors that were measured.
    """
    return has("AVX2") and _ONEDNN is not None and _PACK is not None


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
        feeds_product: bool = False,
        fused_blocks: int = 1,
    ) -> None:
        super().__init__(in_features, out_features, bias)
        self.fused_blocks = fused_blocks
        self.feeds_product = feeds_product

    def forward(self, input: Tensor) -> Tensor:
        if self.is_steady:
            return steady_linear(input, self.weight, self.bias)
        return linear(input, self.weight, self.bias, feeds_product=self.feeds_product)


def linear(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, *, feeds_product: bool = False
) -> Tensor:
    """(T, I) times (O, I) transposed, plus (O,): (T, O), of the inputs' dtype.

    Under a CPU's autocast, float32 inputs are rounded to bfloat16 and the output is float32.
    ``feeds_product`` is for an output that only an elementwise function and another product read,
    which would round it and fill it up again: it may have more rows, and stays in bfloat16.
    """
    if _bfloat16_fits(hidden, weight):
        rounded = _rounded(weight)
        return _BFloat16Linear.apply(hidden, weight, rounded, bias, feeds_product)  # type: ignore[no-any-return,no-untyped-call]
    # Answers of a network in training, as on its dev part, have the bits of the opened RUN's.
    answers = not (torch.is_grad_enabled() or torch.compiler.is_compiling()) and lays_out_float32()
    if not ((answers or _products == "onednn") and _onednn_fits(hidden, weight)):
        return functional.linear(hidden, weight, bias)
    if torch.is_grad_enabled():
        return _OneDNNLinear.apply(hidden, weight, bias, feeds_product)  # type: ignore[no-any-return,no-untyped-call]
    found = _product(filled(hidden, size_of(len(hidden))), weight, bias)
    return found if feeds_product else found[: len(hidden)]


def steady_linear(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``linear`` of float32 on a CPU, without gradients, by oneDNN."""
    rows = filled(hidden, size_of(len(hidden)))
    found: Tensor = _ONEDNN(rows, weight, bias, "none", [], "")[: len(hidden)]
    return found


class PackedLinear:
    """``linear`` of float32 on a CPU, without gradients, with a weight laid out for oneDNN once.

    Args:
        weight, bias: (O, I) and (O,).

    Its rows have the bits of ``linear`` where that takes oneDNN.
    """

    dtype = torch.float32

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        #: Whether it computes functions too.
        self.is_laid_out = self.dtype != torch.float32 or lays_out_float32()
        weight, self.bias = (each.detach().to(self.dtype) for each in (weight, bias))
        self._weight = _PACK(weight, None) if self.is_laid_out else weight

    @property
    def weight(self) -> Tensor:
        """(O, I), as it was given but for the dtype; made anew each time."""
        return self._weight.to_dense() if self.is_laid_out else self._weight

    def __call__(
        self, hidden: Tensor, added: Tensor | None = None, function: tuple[str, str] = ("none", "")
    ) -> Tensor:
        """(T, I) to (T, O); plus ``added`` (T, O), or ``function`` of it, by its name."""
        if not self.is_laid_out:
            assert function[0] == "none"
            plain = functional.linear(hidden, self._weight, self.bias)
            return plain if added is None else plain.add_(added)
        count, size = hidden.shape[0], size_of(hidden.shape[0])
        rows = filled(hidden, size)
        if added is None:
            name, form = function
            found: Tensor = _ONEDNN(rows, self._weight, self.bias, name, [], form)
        else:
            found = _ONEDNN.binary(rows, filled(added, size), self._weight, self.bias, "add")
        return cut(found, count)

    def __getstate__(self) -> dict[str, Any]:
        """With the weight as it was, which a copy or another process lays out itself."""
        return {**self.__dict__, "_weight": self.weight}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.is_laid_out:
            self._weight = _PACK(self._weight, None)


class BFloat16Linear(PackedLinear):
    """The same in bfloat16, of a float32 weight and bias that are rounded here.

    A sum is rounded once, after the bias, the function and what is added.
    """

    dtype = torch.bfloat16

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__(weight, bias)
        parts = (each.view(torch.int16).numpy().tobytes() for each in (self.weight, self.bias))
        #: sha256 of what decides its outputs.
        self.digest = hashlib.sha256(b"".join(parts)).digest()


def plain_bfloat16_linear(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The plain body of ``BFloat16Linear``, before anything is added."""
    rows, weight, bias = (each.bfloat16().double() for each in (hidden, weight, bias))
    return (rows @ weight.T + bias).bfloat16()


@cache
def has_bfloat16_products() -> bool:
    """Whether oneDNN multiplies bfloat16 here, as ``BFloat16Linear`` asks it to."""
    generator = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(size, 64, generator=generator) for size in (5, 32))
    rows, bias, added = hidden.bfloat16(), torch.linspace(-1, 1, 32), torch.ones(5, 32)
    try:
        if not is_x86() or not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return False
        product = BFloat16Linear(weight, bias)
        found = (
            product(rows),
            product(rows, added.bfloat16()) - 1,
            product(rows, None, ("relu", "")),
        )
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        return False
    expected = plain_bfloat16_linear(hidden, weight, bias).float()
    rounded = (each.float() for each in found)
    return all(
        torch.allclose(each, other, rtol=2**-5, atol=0.1)
        for each, other in zip(rounded, (expected, expected, expected.relu()), strict=True)
    )


_of_this_thread = threading.local()


class RoundedWeights:
    """Weights in bfloat16, each rounded once while they do not change; threads may share it.

    Linear layers of a thread take them from it within ``in_use``.
    """

    def __init__(self) -> None:
        # The weight is held too, so that no other tensor has its identity.
        self._known: dict[int, tuple[Tensor, Tensor]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        _of_this_thread.weights = self
        try:
            yield
        finally:
            del _of_this_thread.weights

    def rounded(self, weight: Tensor) -> Tensor:
        """``weight.bfloat16()``; a part of a parameter is a part of the rounded parameter."""
        whole = weight if weight._base is None else weight._base
        with self._lock:
            if id(whole) not in self._known:
                self._known[id(whole)] = whole, whole.detach().bfloat16()
            found = self._known[id(whole)][1]
        begin = weight.storage_offset() - whole.storage_offset()
        return found.as_strided(weight.shape, weight.stride(), begin)


def _rounded(weight: Tensor) -> Tensor:
    known: RoundedWeights | None = None
    if not torch.compiler.is_compiling():
        known = getattr(_of_this_thread, "weights", None)
    return weight.detach().bfloat16() if known is None else known.rounded(weight)


_Factors = tuple[Tensor, Tensor, Tensor]
"""A weight (O, I), the gradient of its outputs (T, O) and its inputs (T, I), both in bfloat16."""


class WeightGradients:
    """The factors of the weights' gradients in a step's pieces, which are multiplied at once.

    A product of a few hundred rows takes no longer than the passes over its result, which bring it
    to float32 and add it to that of another piece.
    """

    def __init__(self, num_pieces: int) -> None:
        self._pieces: list[list[_Factors]] = [[] for _ in range(num_pieces)]

    @contextmanager
    def of_piece(self, number: int) -> Iterator[None]:
        """Within it the bfloat16 layers of this thread leave their weights' factors here."""
        _of_this_thread.factors = self._pieces[number]
        try:
            yield
        finally:
            del _of_this_thread.factors

    def by_weight(self) -> list[Callable[[], tuple[Tensor, Tensor]]]:
        """For each parameter a function that gives it, and its gradient over all pieces."""
        found: dict[int, dict[int, list[_Factors]]] = {}
        for each in chain.from_iterable(self._pieces):
            weight = each[0]
            whole = weight if weight._base is None else weight._base
            found.setdefault(id(whole), {}).setdefault(int(weight.storage_offset()), []).append(
                each
            )
        return [partial(_weight_gradient, parts) for parts in found.values()]


def _weight_gradient(parts: dict[int, list[_Factors]]) -> tuple[Tensor, Tensor]:
    """A parameter and its gradient from the factors of its parts, by where each begins."""
    found = []
    for _, factors in sorted(parts.items()):
        (weight, *_), gradients, hidden = zip(*factors, strict=True)
        size = size_of(sum(map(len, hidden)))
        a, b = (filled(torch.cat(each), size) for each in (gradients, hidden))
        found.append((a.t() @ b).float())
    whole = weight if weight._base is None else weight._base
    result = found[0] if len(found) == 1 else torch.cat(found)
    assert result.shape == whole.shape
    return whole, result


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
    if _products == "onednn" and _onednn_fits(a, b):
        return _product(a, b, bias)
    return functional.linear(a, b, bias)


def _onednn_fits(hidden: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN can multiply: float32 on a CPU, no autocast, ``hidden`` (T, I) with T > 0."""
    return (
        hidden.device.type == "cpu"
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
    found: Tensor = _ONEDNN(a, b, bias, "none", [], "")
    return found


class _OneDNNLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, feeds_product: bool
    ) -> Tensor:
        ctx.count = len(hidden)
        rows = filled(hidden, size_of(ctx.count))
        ctx.save_for_backward(rows, weight)
        found = _product(rows, weight, bias)
        return found if feeds_product else found[: ctx.count]

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, gradient: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        hidden, weight = ctx.saved_tensors
        needs_hidden, needs_weight, needs_bias, _ = ctx.needs_input_grad
        rows = filled(gradient, len(hidden))
        return (
            _product(rows, weight.t())[: ctx.count] if needs_hidden else None,
            _product(rows.t(), hidden.t()) if needs_weight else None,
            gradient.sum(0) if needs_bias else None,
            None,
        )


class _BFloat16Linear(torch.autograd.Function):
    """Rounds factors to bfloat16, adds products in float32, and rounds the sums once more."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        whole: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        feeds_product: bool,
    ) -> Tensor:
        ctx.count, ctx.of_hidden, ctx.weight = len(hidden), hidden.dtype, whole
        rounded = filled(hidden, size_of(ctx.count), torch.bfloat16)
        ctx.save_for_backward(rounded, weight)
        with torch.autocast("cpu", enabled=False):
            if feeds_product:
                return functional.linear(rounded, weight, None if bias is None else bias.bfloat16())
            found = functional.linear(rounded, weight)[: ctx.count].float()
        return found if bias is None else found.add_(bias)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, gradient: Tensor
    ) -> tuple[Tensor | None, Tensor | None, None, Tensor | None, None]:
        hidden, weight = ctx.saved_tensors
        needs_hidden, needs_weight, _, needs_bias, _ = ctx.needs_input_grad
        rounded = filled(gradient, len(hidden), torch.bfloat16)
        left: list[_Factors] | None = getattr(_of_this_thread, "factors", None)
        if needs_weight and left is not None:
            left.append((ctx.weight, rounded[: ctx.count], hidden[: ctx.count]))
            needs_weight = False
        with torch.autocast("cpu", enabled=False):
            return (
                (rounded @ weight)[: ctx.count].to(ctx.of_hidden) if needs_hidden else None,
                (rounded.t() @ hidden).float() if needs_weight else None,
                None,
                gradient.sum(0).float() if needs_bias else None,
                None,
            )


# A linear layer in 8-bit integers on a CPU: a scale an output channel, a scale and a zero a row.
#
# Weights are rounded once, to w = s_o * q with q from -127 to 127.  A row of activations is rounded
# as it comes, to x = s_t * p + z_t with p from 0 to 255.  Then y = s_t * s_o * sum(p * q) + z_t *
# sum(w) + b.  Sums of integers are exact, and the rest works on each row alone: so a row has the
# same bits in any batch (Dettmers et al.  2022, "LLM.int8()", section 3.1, has such scales).
#
# The operators are oneDNN's and FBGEMM's, as PyTorch ships them for torch.compile and for embedding
# tables.  PyTorch does not promise to keep them, so ``largest_weight`` tries them first.  T rows, I
# inputs, O outputs.

# Without VNNI two neighbouring products are added in 16 bits: 255 * 63 * 2 fits, 255 * 127 * 2 not.
_LARGEST_WEIGHTS: Final = (127, 63)
_LARGEST_ROW_VALUE: Final = 255
# A row's scale and zero follow its values, a float32 each; the weights there are 0.
_TAIL: Final = 8


class Int8Linear:
    """``linear`` with a weight (O, I) and a bias (O,) that are rounded here; I is a multiple of 4.

    Its weights take a quarter of float32's memory.
    """

    is_laid_out = False
    """For functions: it computes none."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        integers, self._scales = rounded_weight(weight, largest_weight())
        padded = torch.nn.functional.pad(integers, (0, _TAIL))
        operators = _operators()
        self._inputs = weight.shape[1]
        self._round, self._multiply = operators.round_rows, operators.product
        self._packed = operators.prepack(padded, None)
        self._zeros = torch.zeros(len(weight), dtype=torch.int64)
        self._row_sums = integers.sum(1, dtype=torch.int64).float() * self._scales
        self._bias = bias.detach().clone()
        parts = (integers.view(torch.uint8), self._scales, self._bias)
        #: sha256 of what decides its outputs.
        self.digest = hashlib.sha256(b"".join(each.numpy().tobytes() for each in parts)).digest()

    def __call__(self, hidden: Tensor, added: Tensor | None = None) -> Tensor:
        """(T, I) to (T, O), float32; plus ``added`` (T, O)."""
        if hidden.shape[0] <= MOST_ROWS:
            found = self._of_few(hidden)
        else:
            found = torch.cat([self._of_few(part) for part in torch.split(hidden, MOST_ROWS)])
        return found if added is None else found.add_(added)

    def _of_few(self, hidden: Tensor) -> Tensor:
        count = hidden.shape[0]
        size = size_of(count)
        rows = self._round(hidden)  # (T, I + 8) uint8
        if size != count:
            # Rows past the end hold whatever the memory held, and nobody reads their products.
            rows.resize_(size, self._inputs + _TAIL)
        found = self._multiply(
            rows, 1.0, 0, self._packed, self._scales, self._zeros, None, 1.0, 0, torch.float32,
            "none", [], "",
        )  # fmt: skip
        tails = rows.view(torch.float32).narrow(1, self._inputs // 4, 2)
        if size != count:
            found, tails = found[:count], tails[:count]
        steps, lows = tails.split(1, 1)  # (T, 1) each
        result: Tensor = torch.addcmul(self._bias, found, steps)
        return result.addcmul_(lows, self._row_sums)


def plain_int8_linear(hidden: Tensor, weight: Tensor, bias: Tensor, largest: int = 127) -> Tensor:
    """The plain body of ``Int8Linear``."""
    integers, scales = rounded_weight(weight, largest)
    low, high = hidden.aminmax(dim=1, keepdim=True)
    steps = ((high - low) / _LARGEST_ROW_VALUE).clamp(min=torch.finfo(torch.float32).tiny)
    rows = ((hidden - low) / steps).round()
    sums = (rows.double() @ integers.double().T).float()
    return steps * sums * scales + low * (integers.sum(1) * scales) + bias


def rounded_weight(weight: Tensor, largest: int) -> tuple[Tensor, Tensor]:
    """(O, I) int8 of -largest to largest, and the scales (O,) float32 of its rows."""
    scales = weight.abs().amax(1) / largest
    # A row of zeros has any scale.
    scales = scales.clamp(min=torch.finfo(torch.float32).tiny)
    return (weight / scales[:, None]).round().to(torch.int8), scales


@cache
def largest_weight() -> int:
    """The largest weight of a product that is exact here: 127, 63 without VNNI, 0 for none."""
    if not has("AVX2"):
        # oneDNN's body for other processors is far slower than float32.
        return 0
    return next((largest for largest in _LARGEST_WEIGHTS if _is_exact(largest)), 0)


def _is_exact(largest: int) -> bool:
    """Whether the operators exist, and give the sums that integers have, of extreme values too."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(0, 256, (24, 256 + _TAIL), generator=generator).byte()
    weight = torch.randint(-largest, largest + 1, (96, 256 + _TAIL), generator=generator).char()
    rows[:8], weight[:32], weight[32:64] = _LARGEST_ROW_VALUE, largest, -largest
    states = torch.linspace(-3.0, 5.0, 4 * 64).view(4, 64)
    try:
        operators = _operators()
        found = operators.product(
            rows, 1.0, 0, operators.prepack(weight, None), torch.ones(96),
            torch.zeros(96, dtype=torch.int64), None, 1.0, 0, torch.float32, "none", [], "",
        )  # fmt: skip
        rounded = operators.round_rows(states)
    except (AttributeError, NotImplementedError, RuntimeError):
        return False
    tails = rounded.view(torch.float32)
    restored = rounded[:, :-_TAIL].float() * tails[:, -2:-1] + tails[:, -1:]
    return bool(
        torch.equal(found.double(), rows.double() @ weight.double().T)
        and (restored - states).abs().max() < (states[0, -1] - states[0, 0]) / 400
    )


class _Operators:
    def __init__(self) -> None:
        onednn: Any = torch.ops.onednn
        self.prepack: Any = onednn.qlinear_prepack.default
        self.product: Any = onednn.qlinear_pointwise.default
        self.round_rows: Any = torch.ops.quantized.embedding_bag_byte_prepack.default


@cache
def _operators() -> _Operators:
    return _Operators()
