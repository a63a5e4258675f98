"""A linear layer in 8-bit integers on a CPU: a scale an output channel, a scale and a zero a row.

Weights are rounded once, to w = s_o * q with q from -127 to 127.  A row of activations is rounded
as it comes, to x = s_t * p + z_t with p from 0 to 255.  Then
y = s_t * s_o * sum(p * q) + z_t * sum(w) + b.
Sums of integers are exact, and the rest works on each row alone: so a row has the same bits in any
batch (Dettmers et al. 2022, "LLM.int8()", section 3.1, has such scales).

The operators are oneDNN's and FBGEMM's, as PyTorch ships them for torch.compile and for embedding
tables.  PyTorch does not promise to keep them, so ``largest_weight`` tries them first.
T rows, I inputs, O outputs.
"""

import hashlib
import platform
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor

# Without VNNI two neighbouring products are added in 16 bits: 255 * 63 * 2 fits, 255 * 127 * 2 not.
_LARGEST_WEIGHTS: Final = (127, 63)
_LARGEST_ROW_VALUE: Final = 255
# A row's scale and zero follow its values, a float32 each; the weights there are 0.
_TAIL: Final = 8
# What lies between two products of so many rows stays in a core's cache.
MOST_ROWS: Final = 128
# oneDNN makes a kernel for each number of rows, in a third of a millisecond; so there are twelve.
_SIZES: Final = (*range(8, 65, 8), 80, 96, 112, MOST_ROWS)
#: By a number of rows, up to MOST_ROWS, how many are computed.
SIZE_OF: Final = tuple(next(size for size in _SIZES if size >= n) for n in range(MOST_ROWS + 1))


class Int8Linear:
    """``linear`` with a weight (O, I) and a bias (O,) that are rounded here; I is a multiple of 4.

    Its weights take a quarter of float32's memory.
    """

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
        size = SIZE_OF[count]
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
    is_x86 = platform.machine().lower() in ("x86_64", "amd64")
    if not is_x86 or torch.backends.cpu.get_cpu_capability() == "DEFAULT":
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
