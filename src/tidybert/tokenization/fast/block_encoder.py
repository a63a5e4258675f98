"""The fast path from many texts to ids: all steps work on thousands of chunks of text at a time.

    texts  --chunk_cutting-->  chunks, as places in one string of bytes
    chunks --chunk_table-->    the ids of every chunk that was seen before
    others --chunk_cutting-->  normalised words  --piece_trie-->  ids, kept for the next time

A call costs at least a few hundred microseconds, so ``batch_encoder`` leaves a few short texts to
its dictionary.
"""

import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tidybert.tokenization.basic import BasicTokenizer
from tidybert.tokenization.fast.chunk_cutting import ChunkCutter, Integers, normalized_words
from tidybert.tokenization.fast.chunk_table import ChunkTable
from tidybert.tokenization.fast.piece_trie import PieceTrie
from tidybert.tokenization.vocabulary import Vocabulary

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
        """(ids (T,), lengths (B,)) of B texts, laid end to end, without special tokens.

        Raises TypeError for anything but a string, UnicodeEncodeError for a lone surrogate.
        """
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
