"""Many texts cut into chunks at once, in UTF-8, and chunks into normalised words.

Chunks end where the pieces of ``basic`` do: at white space, and around marks and CJK ideographs,
which are chunks of their own.  ``ChunkCutter`` cuts only what is cheap to see in bytes: ASCII, and
the marks and ideographs of three bytes.  The rare others stay inside a chunk, and
``normalized_words`` finds them.
"""

import secrets
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tidybert.tokenization import unicode_tables as tables
from tidybert.tokenization.basic import BasicTokenizer

# A hash table in NumPy arrays, which finds or adds many chunks in one call.
#
# Open addressing with linear probing: a key takes the first free slot from its home, the slot of
# its hash.  All keys of a call probe together, a slot a round, and drop out once they have found
# theirs.  The table compares whole keys: the hash affects speed alone.

Keys = Sequence[npt.NDArray[np.uint64]]
Integers = npt.NDArray[np.int64]

_FIRST_SIZE = 2**10


class ChunkTable:
    """An int64 value for each key; a key is ``width`` words of eight bytes, the first never 0.

    N keys are ``width`` arrays (N,), one a word; ``values`` has the value of each slot.  The table
    grows so that it is never more than half full; the caller clears it when it holds too much.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        # Random for each table, so that nobody can write a text whose chunks all collide.
        self._factors = [np.uint64(secrets.randbits(64) | 1) for _ in range(width)]
        self.clear()

    def __len__(self) -> int:
        return self._num_entries

    @property
    def nbytes(self) -> int:
        """The memory of all slots, in bytes."""
        return sum(words.nbytes for words in self._words) + self.values.nbytes

    def clear(self) -> None:
        """Forget every key."""
        self._allocate(_FIRST_SIZE)

    def find_or_add(self, keys: Keys) -> tuple[Integers, Integers]:
        """(slots (N,), new (M,)): where each key is, and which of the keys were added.

        ``new`` has one of several equal keys.  The caller sets the values of ``slots[new]`` before
        the next call, which may move slots.
        """
        slots = self._homes(keys)
        pending = np.flatnonzero(~self._holds(slots, keys))
        needed = 2 * (len(self) + len(pending))
        if needed > len(self.values):
            self._grow(needed)
            slots = self._homes(keys)
            pending = np.flatnonzero(~self._holds(slots, keys))
        new = [pending[:0]]
        while len(pending):
            claiming = pending[self._words[0][slots[pending]] == 0]
            claimed = slots[claiming]
            # The last of several keys that claim a slot gets it, here and in each of the words.
            self.values[claimed] = claiming
            for words, key in zip(self._words, keys, strict=True):
                words[claimed] = key[claiming]
            new.append(claiming[self.values[claimed] == claiming])
            at = slots[pending]
            elsewhere = ~self._holds(at, [key[pending] for key in keys])
            pending = pending[elsewhere]
            slots[pending] = (at[elsewhere] + 1) % len(self.values)
        added = np.concatenate(new)
        self._num_entries += len(added)
        return slots, added

    def _homes(self, keys: Keys) -> Integers:
        mixed = keys[0] * self._factors[0]
        for key, factor in zip(keys[1:], self._factors[1:], strict=True):
            mixed += key * factor
        # The high bits of a product depend on all bits of the key.
        return (mixed >> np.uint64(65 - len(self.values).bit_length())).astype(np.int64)

    def _holds(self, slots: Integers, keys: Keys) -> npt.NDArray[np.bool_]:
        same: npt.NDArray[np.bool_] = self._words[0][slots] == keys[0]
        for words, key in zip(self._words[1:], keys[1:], strict=True):
            same &= words[slots] == key
        return same

    def _grow(self, needed: int) -> None:
        taken = np.flatnonzero(self._words[0])
        keys = [words[taken] for words in self._words]
        values = self.values[taken]
        self._allocate(1 << (needed - 1).bit_length())
        slots, _ = self.find_or_add(keys)
        self.values[slots] = values

    def _allocate(self, size: int) -> None:
        self._num_entries = 0
        self._words = [np.zeros(size, np.uint64) for _ in range(self.width)]
        self.values = np.zeros(size, np.int64)


#: Zeros after the texts, so that reading in words of eight bytes from any chunk stays inside.
PADDING: Final = 64

_BETWEEN, _LETTER, _MARK = range(3)
# A mark that is always a chunk of its own, and that normalisation leaves as it is.
_SEPARATOR = "!"


class Chunks(NamedTuple):
    """N chunks of B texts.

    Args:
        data: the texts in UTF-8, each ended by a zero, then PADDING zeros.
        starts: (N,) where in ``data`` each chunk begins; never at a zero.
        lengths: (N,) of each in bytes, at least 1.
        text_ends: (B,) the number of chunks before the end of each text.
    """

    data: bytes
    starts: Integers
    lengths: Integers
    text_ends: Integers


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


class ChunkCutter:
    """Cut texts, and fold differences that do not change ids, so that more chunks are equal.

    Drops ASCII control characters, like cleaning; ``do_lower_case`` lower-cases ASCII.
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
        """The chunks of all texts, in order."""
        data = b"\0".join([*map(str.encode, texts), bytes(PADDING)])
        data = data.translate(self._folding, self._removed)
        characters = np.frombuffer(data, np.uint8)
        text_ends = np.flatnonzero(characters[:-PADDING] == 0)
        if len(text_ends) != len(texts):
            # Cleaning drops the zeros inside texts, like other control characters.
            return self.cut([text.replace("\0", "") for text in texts])
        kinds = np.frombuffer(data.translate(self._kinds), np.uint8)
        is_letter = kinds == _LETTER
        # Whether a byte goes on with the chunk of the byte before it.
        goes_on = np.zeros(len(data) + 1, np.bool_)
        np.logical_and(is_letter[1:], is_letter[:-1], out=goes_on[1:-1])
        if not data.isascii():
            alone = self._alone(characters)
            goes_on[alone] = False
            goes_on[alone + 3] = False
        is_filled = kinds != _BETWEEN
        starts = np.flatnonzero(is_filled & ~goes_on[:-1])
        lasts = np.flatnonzero(is_filled & ~goes_on[1:])
        return Chunks(data, starts, lasts + 1 - starts, np.searchsorted(starts, text_ends))

    def _alone(self, characters: npt.NDArray[np.uint8]) -> Integers:
        """The places of the characters of three bytes that are chunks of their own."""
        places = np.flatnonzero(characters & 0xF0 == 0xE0)
        # 1110aaaa 10bbbbbb 10cccccc is U+aaaabbbbbbcccccc; shifted by 12, 16 bits keep aaaa alone.
        points = characters[places].astype(np.uint16) << 12
        points |= (characters[places + 1].astype(np.uint16) & 0x3F) << 6
        points |= characters[places + 2] & 0x3F
        alone: Integers = places[self._is_alone[points]]
        return alone


def _members(table: str, stop: int) -> npt.NDArray[np.bool_]:
    """Whether each code point below ``stop`` is in a table of ``unicode_tables``."""
    members = np.zeros(stop, np.bool_)
    for first, last in tables.ranges(table):
        members[first : last + 1] = True
    return members


def normalized_words(
    basic: BasicTokenizer, data: bytes, starts: Integers, lengths: Integers
) -> Words:
    """The words of the chunks data[starts[i]:starts[i] + lengths[i]] that ``ChunkCutter`` cut.

    Such a chunk is one normalised word if it is ASCII; all others are normalised together.
    """
    text = np.frombuffer(data, np.uint8)
    ends = starts + lengths
    plain, others = _by_script(text, starts, lengths)
    places = zip(starts[others].tolist(), ends[others].tolist(), strict=True)
    chunks = [data[start:end].decode() for start, end in places]
    words = basic.split(_SEPARATOR.join(chunks))
    is_separator = np.array([word == _SEPARATOR for word in words], np.bool_)
    encoded = [word.encode() for word in words]
    word_ends = len(data) + np.cumsum(np.array([len(word) for word in encoded], np.int64))
    word_starts = np.concatenate([[len(data)], word_ends[:-1]]) if words else word_ends
    is_word = ~is_separator
    return Words(
        np.frombuffer(b"".join([data, *encoded, b"\0"]), np.uint8),
        np.concatenate([starts[plain], word_starts[is_word]]),
        np.concatenate([ends[plain], word_ends[is_word]]),
        np.concatenate([plain, others[np.cumsum(is_separator)[is_word]]]),
    )


def _by_script(
    text: npt.NDArray[np.uint8], starts: Integers, lengths: Integers
) -> tuple[Integers, Integers]:
    """The numbers of the chunks that are ASCII, and of those that are not."""
    before = np.cumsum(lengths) - lengths
    places = np.repeat(starts - before, lengths) + np.arange(lengths.sum())
    is_ascii = np.bitwise_or.reduceat(text[places], before) < 0x80
    return np.flatnonzero(is_ascii), np.flatnonzero(~is_ascii)
