"""Numbers of rows from a short list: on a CPU a product computes so many, and drops the last ones.

oneDNN makes a kernel for each number of rows, in a third of a millisecond to several.  That is as
long as the product of some hundred rows, and a batch has its own number.  Rows past the end are
zeros, so they change no other row and no sum over the rows.  T rows, P of the list, I inputs.
"""

from bisect import bisect_left
from typing import Final

import torch
from torch import Tensor

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
