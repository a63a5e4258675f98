"""Many texts cut into chunks at once, in UTF-8.

Chunks end where the pieces of ``basic`` do: at white space, and around marks and CJK ideographs,
which are chunks of their own.  Only what is cheap to see in bytes is cut here: all that is ASCII,
and the marks and ideographs of three bytes.  The rare others stay inside a chunk, and are found
when its words are worked out.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tidybert.tokenization import unicode_tables as tables

#: Zeros after the texts, so that reading in words of eight bytes from any chunk stays inside.
PADDING: Final = 64

_BETWEEN, _LETTER, _MARK = range(3)


class Chunks(NamedTuple):
    """N chunks of B texts.

    Args:
        data: the texts in UTF-8, each ended by a zero, then PADDING zeros.
        starts: (N,) where in ``data`` each chunk begins; never at a zero.
        lengths: (N,) of each in bytes, at least 1.
        text_ends: (B,) the number of chunks before the end of each text.
    """

    data: bytes
    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    text_ends: npt.NDArray[np.int64]


class ChunkCutter:
    """Cut texts, and fold what makes no difference to their ids, so that more chunks are the same.

    ASCII control characters are dropped, as cleaning does; ``do_lower_case`` lower-cases ASCII.
    """

    def __init__(self, do_lower_case: bool, tokenize_chinese_chars: bool) -> None:
        removed = _members(tables.REMOVED, 0x80)
        removed[0] = False  # It ends a text.
        space = _members(tables.WHITE_SPACE, 0x80)
        folding = np.arange(256, dtype=np.uint8)
        folding[:0x80][space] = ord(" ")
        self._folding = folding.tobytes().lower() if do_lower_case else folding.tobytes()
        self._removed = np.flatnonzero(removed).astype(np.uint8).tobytes()
        kinds = np.full(256, _LETTER, np.uint8)
        kinds[[0, ord(" ")]] = _BETWEEN
        kinds[:0x80][_members(tables.PUNCTUATION, 0x80)] = _MARK
        self._kinds = kinds.tobytes()
        alone = tables.PUNCTUATION + (tables.CJK if tokenize_chinese_chars else "")
        self._is_alone = _members(alone, 0x10000)

    def cut(self, texts: Sequence[str]) -> Chunks:
        """The chunks of all texts, in order.

        Raises TypeError for anything but a string, UnicodeEncodeError for a lone surrogate.
        """
        data = b"\0".join([*map(str.encode, texts), bytes(PADDING)])
        data = data.translate(self._folding, self._removed)
        characters = np.frombuffer(data, np.uint8)
        text_ends = np.flatnonzero(characters[:-PADDING] == 0)
        if len(text_ends) != len(texts):
            # Cleaning drops the zeros inside texts, as other control characters.
            return self.cut([text.replace("\0", "") for text in texts])
        kinds = np.frombuffer(data.translate(self._kinds), np.uint8)
        is_letter = kinds == _LETTER
        # Whether a byte goes on with the chunk of the byte before it.
        goes_on = np.zeros(len(data) + 1, np.bool_)
        np.logical_and(is_letter[1:], is_letter[:-1], out=goes_on[1:-1])
        if not data.isascii():
            alone = self._standing_alone(characters)
            goes_on[alone] = False
            goes_on[alone + 3] = False
        is_filled = kinds != _BETWEEN
        starts = np.flatnonzero(is_filled & ~goes_on[:-1])
        lasts = np.flatnonzero(is_filled & ~goes_on[1:])
        return Chunks(data, starts, lasts + 1 - starts, np.searchsorted(starts, text_ends))

    def _standing_alone(self, characters: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
        """The places of the characters of three bytes that are chunks of their own."""
        places = np.flatnonzero(characters & 0xF0 == 0xE0)
        # 1110aaaa 10bbbbbb 10cccccc is U+aaaabbbbbbcccccc; shifted by 12, 16 bits keep aaaa alone.
        points = characters[places].astype(np.uint16) << 12
        points |= (characters[places + 1].astype(np.uint16) & 0x3F) << 6
        points |= characters[places + 2] & 0x3F
        alone: npt.NDArray[np.int64] = places[self._is_alone[points]]
        return alone


def _members(table: str, stop: int) -> npt.NDArray[np.bool_]:
    """Whether each code point below ``stop`` is in a table of ``unicode_tables``."""
    members = np.zeros(stop, np.bool_)
    for first, last in tables.ranges(table):
        members[first : last + 1] = True
    return members
