"""The fast path from many texts to ids: all steps work on thousands of chunks of text at a time.

    texts  --ChunkCutter-->  chunks, as places in one string of bytes
    chunks --ChunkTable-->   the ids of every chunk that was seen before
    others --normalized_words-->  words  --PieceTrie-->  ids, kept for the next time

Chunks end where the pieces of ``basic`` do: at white space, and around marks and CJK ideographs,
which are chunks of their own.  ``ChunkCutter`` cuts only what is cheap to see in bytes: ASCII, and
the marks and ideographs of three bytes.  The rare others stay inside a chunk, and
``normalized_words`` finds them.

A call costs at least a few hundred microseconds, so ``batch_encoder`` leaves a few short texts to
its dictionary.
"""

import secrets
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tidybert.tokenization import unicode_tables as tables
from tidybert.tokenization.basic import BasicTokenizer
from tidybert.tokenization.vocabulary import CONTINUATION, UNK_TOKEN, Vocabulary
from tidybert.tokenization.wordpiece import MAX_CHARS_PER_WORD

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


# WordPiece for many words at once: the greedy search of ``wordpiece``, in NumPy.
#
# The vocabulary is a trie over UTF-8 bytes with two roots, one for the tokens that begin a word and
# one for those that continue it, without their "##".  All words go down it together, a byte a step.
# A token cannot end inside a character of valid UTF-8, so longest in bytes is longest in
# characters.

Bytes = npt.NDArray[np.uint8]

_FIRST, _REST = range(2)
_NO_TOKEN: Final = -1


class PieceTrie:
    """The tokens of a vocabulary, as a trie of V nodes.

    The children of a node have successive numbers, in the order of their bytes.  A node's 256
    possible bytes are four groups of 64: group g of node n is number 4 n + g.  ``_present`` (4 V,)
    has a bit for each byte of a group that leads to a child, ``_first_child`` (4 V,) the number of
    the first of these children.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        tokens = vocabulary.tokens
        endings = [
            index
            for index, token in enumerate(tokens)
            if token.startswith(CONTINUATION) and token != CONTINUATION
        ]
        strings = [token.encode("utf-8", "surrogatepass") for token in tokens]
        strings += [strings[index].removeprefix(CONTINUATION.encode()) for index in endings]
        text = np.frombuffer(b"".join(strings), np.uint8)
        lengths = np.fromiter(map(len, strings), np.int64, len(strings))
        starts = np.cumsum(lengths) - lengths
        nodes = np.repeat([_FIRST, _REST], [len(tokens), len(endings)])
        edges = []
        num_nodes = 2
        level = 0
        longer = np.flatnonzero(lengths)
        while len(longer):
            # Sorted by parent, then byte: the order in which children are numbered.
            new, which = np.unique(
                nodes[longer] << 8 | text[starts[longer] + level], return_inverse=True
            )
            nodes[longer] = num_nodes + which
            edges.append(new)
            num_nodes += len(new)
            level += 1
            longer = longer[lengths[longer] > level]
        self._unknown = vocabulary.token_to_id(UNK_TOKEN)
        self._tokens = np.full(num_nodes, _NO_TOKEN, np.int32)
        self._tokens[nodes] = [*range(len(tokens)), *endings]
        groups, bits = _group_and_bit(np.concatenate(edges))
        self._present = np.zeros(4 * num_nodes, np.uint64)
        np.bitwise_or.at(self._present, groups, bits)
        num_children = np.bincount(groups, minlength=4 * num_nodes)
        self._first_child = (2 + np.cumsum(num_children) - num_children).astype(np.int32)

    @property
    def nbytes(self) -> int:
        """The memory of the trie, in bytes."""
        return self._tokens.nbytes + self._present.nbytes + self._first_child.nbytes

    def split(self, text: Bytes, starts: Integers, ends: Integers) -> tuple[Integers, Integers]:
        """(ids (T,), counts (N,)) of the pieces of N words; word i is text[starts[i]:ends[i]].

        No word is empty; ``text`` has at least one more byte after the last.
        """
        is_unknown = _too_long(text, starts, ends)
        counts = np.zeros(len(starts), np.int64)
        rounds = []
        words = np.flatnonzero(~is_unknown)
        at, root = starts[words], _FIRST
        while len(words):
            tokens, at = self._longest(text, at, ends[words], root)
            rounds.append((words, tokens))
            counts[words] += 1
            is_found = tokens != _NO_TOKEN
            is_unknown[words[~is_found]] = True
            goes_on = is_found & (at < ends[words])
            words, at, root = words[goes_on], at[goes_on], _REST
        counts[is_unknown] = 1
        places = np.cumsum(counts) - counts
        ids = np.full(counts.sum(), self._unknown)
        for number, (words, tokens) in enumerate(rounds):
            is_known = ~is_unknown[words]
            ids[places[words[is_known]] + number] = tokens[is_known]
        return ids, counts

    def _longest(
        self, text: Bytes, starts: Integers, ends: Integers, root: int
    ) -> tuple[npt.NDArray[np.int32], Integers]:
        """The longest token (N,) that text[starts[i]:ends[i]] begins with, and its end (N,)."""
        tokens = np.full(len(starts), _NO_TOKEN, np.int32)
        token_ends = starts.copy()
        going = np.arange(len(starts))
        at, nodes = starts, np.full(len(starts), root)
        while len(going):
            groups, bits = _group_and_bit(nodes << 8 | text[at])
            has_child = (self._present[groups] & bits != 0) & (at < ends[going])
            going, at, groups, bits = (x[has_child] for x in (going, at, groups, bits))
            at += 1
            before = self._present[groups] & (bits - np.uint64(1))
            nodes = self._first_child[groups] + np.bitwise_count(before).astype(np.int64)
            found = self._tokens[nodes]
            is_token = found != _NO_TOKEN
            tokens[going[is_token]] = found[is_token]
            token_ends[going[is_token]] = at[is_token]
        return tokens, token_ends


def _group_and_bit(edges: Integers) -> tuple[Integers, npt.NDArray[np.uint64]]:
    """For edges (N,), ``node << 8 | byte``: the numbers of their groups, and their bytes' bits."""
    return edges >> 6, np.uint64(1) << (edges & 63).astype(np.uint64)


def _too_long(text: Bytes, starts: Integers, ends: Integers) -> npt.NDArray[np.bool_]:
    """Whether each word has more than MAX_CHARS_PER_WORD characters."""
    too_long: npt.NDArray[np.bool_] = ends - starts > MAX_CHARS_PER_WORD
    for word in np.flatnonzero(too_long):
        # All bytes of a character but its first are 10xxxxxx.
        is_first = text[starts[word] : ends[word]] & 0xC0 != 0x80
        too_long[word] = np.count_nonzero(is_first) > MAX_CHARS_PER_WORD
    return too_long


#: Of each table, and of ids; a batch that begins above one of them forgets everything first.
MAX_ENTRIES: Final = 2**17
MAX_IDS: Final = 2**21

# Characters cut, and chunks looked up, at a time: so few that the arrays stay in the cache.
_GROUP = 2**20
_BATCH = 2**17

# Words of eight bytes to a key; most chunks have one, and few need more than four.
_WIDTHS = (1, 2, 4)
_LONGEST = 8 * _WIDTHS[-1]
# _MASKS[i, length] keeps those bytes of word i that belong to a chunk of this length.
_MASKS = np.array(
    [
        [256 ** min(max(length - 8 * word, 0), 8) - 1 for length in range(_LONGEST + 1)]
        for word in range(_WIDTHS[-1])
    ],
    np.uint64,
)


class BlockEncoder:
    """The ids of many texts, with tables of at most ``max_entries`` chunks and one batch more.

    The value of a chunk is the place of its ids in a pool, times 2**32, plus their number.
    """

    def __init__(
        self,
        basic: BasicTokenizer,
        vocabulary: Vocabulary,
        dtype: np.dtype[Any],
        max_entries: int = MAX_ENTRIES,
    ) -> None:
        self._basic = basic
        self._cutter = ChunkCutter(basic.do_lower_case, basic.tokenize_chinese_chars)
        self._trie = PieceTrie(vocabulary)
        self._dtype = dtype
        self._max_entries = max_entries
        self._tables = [ChunkTable(width) for width in _WIDTHS]
        self._pool: npt.NDArray[Any] = np.empty(0, dtype)
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """The memory of tables, ids and trie, in bytes."""
        return sum(table.nbytes for table in self._tables) + self._pool.nbytes + self._trie.nbytes

    def encode(self, texts: Sequence[str]) -> tuple[npt.NDArray[Any], Integers]:
        """(ids (T,), lengths (B,)) of B texts, laid end to end, without special tokens."""
        ids = [np.empty(0, self._dtype)]
        lengths = [np.empty(0, np.int64)]
        for group in _groups(texts):
            chunks = self._cutter.cut(group)
            counts = [np.zeros(1, np.int64)]
            for start in range(0, len(chunks.starts), _BATCH):
                batch = slice(start, start + _BATCH)
                some = self._encode_batch(chunks.data, chunks.starts[batch], chunks.lengths[batch])
                ids.append(some[0])
                counts.append(some[1])
            ids_before = np.cumsum(np.concatenate(counts))
            lengths.append(np.diff(ids_before[chunks.text_ends], prepend=0))
        return np.concatenate(ids), np.concatenate(lengths)

    def _encode_batch(
        self, data: bytes, starts: Integers, lengths: Integers
    ) -> tuple[npt.NDArray[Any], Integers]:
        """(ids (T,), counts (N,)) of N chunks of ``data``."""
        with self._lock:
            try:
                if max(map(len, self._tables)) > self._max_entries or len(self._pool) > MAX_IDS:
                    self._clear()
                values, pool = self._values(data, starts, lengths)
            except BaseException:
                # An interruption, perhaps by the user's Ctrl-C, may have left keys without values.
                self._clear()
                raise
        counts = values & (2**32 - 1)
        ends = np.cumsum(counts)
        places = np.repeat((values >> 32) - (ends - counts), counts)
        places += np.arange(len(places))
        return pool[places], counts

    def _values(
        self, data: bytes, starts: Integers, lengths: Integers
    ) -> tuple[Integers, npt.NDArray[Any]]:
        """The values (N,) of N chunks, and the pool that they point into."""
        values = np.empty(len(starts), np.int64)
        found = list(self._look_up(data, starts, lengths))
        new = np.concatenate([chunks[added] for _, chunks, _, added in found])
        values[new], self._pool = self._work_out(data, starts[new], lengths[new])
        for table, chunks, slots, added in found:
            table.values[slots[added]] = values[chunks[added]]
            values[chunks] = table.values[slots]
        # Long chunks seldom come twice, so the pool does not keep their ids.
        long = np.flatnonzero(lengths > _LONGEST)
        values[long], pool = self._work_out(data, starts[long], lengths[long])
        return values, pool

    def _look_up(
        self, data: bytes, starts: Integers, lengths: Integers
    ) -> Iterator[tuple[ChunkTable, Integers, Integers, Integers]]:
        """Each table, the numbers and slots (N,) of its chunks, and which are new (M,)."""
        # The eight bytes from every place on, the first the lowest.
        words = np.ndarray(len(data) - 7, np.dtype("<u8"), data, strides=(1,))
        shortest = 1
        for table in self._tables:
            longest = 8 * table.width
            chunks = np.flatnonzero((lengths >= shortest) & (lengths <= longest))
            places, sizes = starts[chunks], lengths[chunks]
            keys = [words[places + 8 * word] & _MASKS[word][sizes] for word in range(table.width)]
            yield table, chunks, *table.find_or_add(keys)
            shortest = longest + 1

    def _work_out(
        self, data: bytes, starts: Integers, lengths: Integers
    ) -> tuple[Integers, npt.NDArray[Any]]:
        """The values (N,) of N chunks, and the pool with their ids at its end."""
        if not len(starts):
            return starts, self._pool
        words = normalized_words(self._basic, data, starts, lengths)
        ids, word_counts = self._trie.split(words.text, words.starts, words.ends)
        begins = np.zeros(len(starts), np.int64)
        # From the last word to the first, so that a chunk begins where its first word does.
        begins[words.chunks[::-1]] = (np.cumsum(word_counts) - word_counts)[::-1]
        counts = np.bincount(words.chunks, word_counts, len(starts)).astype(np.int64)
        pool = np.concatenate([self._pool, ids.astype(self._dtype)])
        return (len(self._pool) + begins) << 32 | counts, pool

    def _clear(self) -> None:
        for table in self._tables:
            table.clear()
        self._pool = np.empty(0, self._dtype)


def _groups(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Successive texts of about _GROUP characters together; a longer text is a group of its own."""
    characters_before = np.cumsum([0, *map(len, texts)])
    start = 0
    while start < len(texts):
        end = int(np.searchsorted(characters_before, characters_before[start] + _GROUP, "right"))
        stop = max(end - 1, start + 1)
        yield texts[start:stop]
        start = stop
