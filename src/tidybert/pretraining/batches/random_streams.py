"""Random numbers by key and counter: no generator has a state that must be kept or passed on.

A draw is a hash of integers that name it: the seed, the epoch, the purpose, the instance, the
token.  So it is the same in any order, batch, process or machine, and a whole batch is drawn at
once.  The hash is the output function of SplitMix64 (Steele, Lea, Flood 2014), once for each
integer; the streams of NumPy's distributions may change with its version.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint64]

_INCREMENT: Final = 0x9E3779B97F4A7C15
_SHIFTS_AND_FACTORS: Final = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_SHIFT: Final = 31
_64_BITS: Final = 2**64 - 1
_LOW_HALF: Final = np.uint64(0xFFFFFFFF)
_ONES: Final = np.array([value.bit_count() for value in range(256)])  # of each byte
_ROUNDS: Final = 8


class Purpose(IntEnum):
    """The use of a number: a word of its key, so that no two uses share a stream."""

    DOCUMENT_ORDER = 1
    TARGET_LENGTH = 2
    SHORT_LENGTH = 3
    SEGMENTS = 4
    INSTANCE_ORDER = 5
    OTHER_DOCUMENT = 6
    OTHER_START = 7
    TRUNCATION_A = 8
    TRUNCATION_B = 9
    MASK_KEY = 10
    MASK_ORDER = 11
    MASK_REPLACEMENT = 13


def random_bits(*words: int | npt.NDArray[np.integer[Any]]) -> Bits:
    """64 random bits for each combination of ``words``, which broadcast like any arrays."""
    # Integers, which come first, are folded without NumPy: it takes ten times as long for one.
    key = 0
    for number, word in enumerate(words):
        if isinstance(word, np.ndarray):
            return _folded(key, words[number:])
        key = key + (word + 1) * _INCREMENT & _64_BITS
        for shift, factor in _SHIFTS_AND_FACTORS:
            key = (key ^ key >> shift) * factor & _64_BITS
        key ^= key >> _LAST_SHIFT
    return np.array(key, np.uint64)


def _folded(key: int, words: Sequence[int | npt.NDArray[np.integer[Any]]]) -> Bits:
    state = np.array(key, np.uint64)
    for word in words:
        # NumPy's integers wrap around without a word, but for single ones.
        counter = np.atleast_1d(np.asarray(word)).astype(np.uint64)
        state = state + (counter + np.uint64(1)) * np.uint64(_INCREMENT)
        for shift, factor in _SHIFTS_AND_FACTORS:
            state ^= state >> np.uint64(shift)
            state *= np.uint64(factor)
        state ^= state >> np.uint64(_LAST_SHIFT)
    return state


def uniform(bits: Bits) -> npt.NDArray[np.float64]:
    """Bits as floats in [0, 1), from the upper 53."""
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def below(bits: Bits, limits: int | npt.NDArray[np.integer[Any]]) -> Array:
    """Bits as integers from 0 to below ``limits``, which are at most 2**32; from the upper 32.

    No integer is more than 1 + limit / 2**32 times as likely as another.
    """
    scaled = (bits >> np.uint64(32)) * np.asarray(limits).astype(np.uint64)
    return (scaled >> np.uint64(32)).astype(np.int64)


def lower_half(bits: Bits) -> Bits:
    """The lower 32 bits as the upper 32 of a second draw, for ``uniform`` or ``below``."""
    return (bits & _LOW_HALF) << np.uint64(32)


def heads(counts: Array, *words: int | npt.NDArray[Any]) -> Array:
    """How many of ``counts`` (n,) fair coins show heads: binomial, one key of ``words`` each."""
    total = np.zeros(len(counts), np.int64)
    for start in range(0, int(counts.max(initial=0)), 64):
        coins = np.clip(counts - start, 0, 64).astype(np.uint64)
        # A shift by 64 is undefined, so it is made in two.
        shift = np.uint64(64) - coins
        half = shift >> np.uint64(1)
        bits = (random_bits(*words, start) >> half) >> (shift - half)
        total += _ONES[bits.view(np.uint8)].reshape(-1, 8).sum(axis=1)
    return total


def permuted(places: Array, size: int, *key: int) -> Array:
    """The values at ``places`` of a permutation of 0 … size - 1 that is never made as a whole.

    A Feistel network permutes the next power of four; a value outside is permuted again until it is
    inside (Black and Rogaway 2002), which takes fewer than four rounds on average.
    """
    half = np.uint64(max(1, ((size - 1).bit_length() + 1) // 2))
    mask = (np.uint64(1) << half) - np.uint64(1)
    found = places.astype(np.uint64)
    outside = np.arange(len(found))
    while len(outside):
        left, right = found[outside] >> half, found[outside] & mask
        for number in range(_ROUNDS):
            left, right = right, left ^ (random_bits(*key, number, right) & mask)
        found[outside] = (left << half) | right
        outside = outside[found[outside] >= np.uint64(size)]
    return found.astype(np.int64)
