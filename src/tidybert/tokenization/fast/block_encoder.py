"""The fast path from many texts to ids: all steps work on thousands of chunks of text at a time.

    texts  --ChunkCutter-->  chunks, as places in one string of bytes
    chunks --ChunkTable-->   the ids of every chunk that was seen before
    others --normalized_words-->  words  --PieceTrie-->  ids, kept for the next time

A call costs at least a few hundred microseconds, so ``batch_encoder`` leaves a few short texts to
its dictionary.
"""

import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tidybert.tokenization.basic import BasicTokenizer
from tidybert.tokenization.fast.chunks import ChunkCutter, ChunkTable, Integers, normalized_words
from tidybert.tokenization.vocabulary import CONTINUATION, UNK_TOKEN, Vocabulary
from tidybert.tokenization.wordpiece import MAX_CHARS_PER_WORD

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
