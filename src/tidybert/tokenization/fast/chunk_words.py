"""The normalised words of many chunks: where they are in a string of bytes."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tidybert.tokenization.basic import BasicTokenizer

Integers = npt.NDArray[np.int64]

# A mark that is always a chunk of its own, and that normalisation leaves as it is.
_BETWEEN = "!"


class Words(NamedTuple):
    """W words; the words of a chunk are side by side and in order.

    Args:
        text: UTF-8, with at least one more byte after the last word.
        starts, ends: (W,) word i is text[starts[i]:ends[i]].
        chunks: (W,) the number of the chunk that each comes from.
    """

    text: npt.NDArray[np.uint8]
    starts: Integers
    ends: Integers
    chunks: Integers


def normalized_words(
    basic: BasicTokenizer, data: bytes, starts: Integers, lengths: Integers
) -> Words:
    """The words of the chunks data[starts[i]:starts[i] + lengths[i]] that ``chunk_cutting`` made.

    Such a chunk is one normalised word if it is ASCII; all others are normalised together.
    """
    text = np.frombuffer(data, np.uint8)
    ends = starts + lengths
    plain, others = _by_script(text, starts, lengths)
    places = zip(starts[others].tolist(), ends[others].tolist(), strict=True)
    chunks = [data[start:end].decode() for start, end in places]
    words = basic.split(_BETWEEN.join(chunks))
    is_between = np.array([word == _BETWEEN for word in words], np.bool_)
    encoded = [word.encode() for word in words]
    word_ends = len(data) + np.cumsum(np.array([len(word) for word in encoded], np.int64))
    word_starts = np.concatenate([[len(data)], word_ends[:-1]]) if words else word_ends
    is_word = ~is_between
    return Words(
        np.frombuffer(b"".join([data, *encoded, b"\0"]), np.uint8),
        np.concatenate([starts[plain], word_starts[is_word]]),
        np.concatenate([ends[plain], word_ends[is_word]]),
        np.concatenate([plain, others[np.cumsum(is_between)[is_word]]]),
    )


def _by_script(
    text: npt.NDArray[np.uint8], starts: Integers, lengths: Integers
) -> tuple[Integers, Integers]:
    """The numbers of the chunks that are ASCII, and of those that are not."""
    before = np.cumsum(lengths) - lengths
    places = np.repeat(starts - before, lengths) + np.arange(lengths.sum())
    is_ascii = np.bitwise_or.reduceat(text[places], before) < 0x80
    return np.flatnonzero(is_ascii), np.flatnonzero(~is_ascii)
