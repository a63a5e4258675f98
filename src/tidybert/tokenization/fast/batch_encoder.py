"""Many texts to ids by the faster of two paths: a dictionary for a few, arrays for many.

A sentence takes a few microseconds in the dictionary, ChunkCache.  The arrays of ``block_encoder``
take a hundred to begin, and then go through many texts three times as fast.

Worker processes are spawned, never forked, so that they inherit nothing of the caller's threads or
accelerator.  A script that asks for them therefore starts under ``if __name__ == "__main__":``.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tidybert.errors import TextError
from tidybert.tokenization.basic import BasicTokenizer, check_text
from tidybert.tokenization.fast.block_encoder import BlockEncoder
from tidybert.tokenization.vocabulary import CLS_TOKEN, SEP_TOKEN, SPECIAL_TOKENS, Vocabulary
from tidybert.tokenization.wordpiece import WordPiece

IdArray = npt.NDArray[np.uint16] | npt.NDArray[np.int32]
Lengths = npt.NDArray[np.int64]

#: Of each of the two generations: together about 20 MB of English, or 40 MB of other scripts.
MAX_ENTRIES = 2**16
#: The cache keeps no longer chunks (addresses, lines of Chinese), which seldom come twice.
MAX_CHUNK_LENGTH = 32
_SPACED_MARKS = [(mark, f" {mark} ") for mark in ',.-()"']
# With fewer characters in one call the dictionary is faster than the arrays (measured on Wikipedia:
# up to 8,000 if every chunk was seen before, up to 30,000 if none was).
_FEW_CHARACTERS = 2**14
# Small enough to share out evenly, large enough that sending a block costs next to nothing.
_BLOCK = 2000
_SPECIAL = re.compile(f"({'|'.join(map(re.escape, SPECIAL_TOKENS))})")

_encoder: Any


def chunks(text: str) -> list[str]:
    """Cut a text at spaces and at the commonest marks, so that more chunks are equal.

    The choice of marks affects speed alone: the ids are the same for any.
    """
    for mark, spaced in _SPACED_MARKS:
        text = text.replace(mark, spaced)
    return text.split(" ")


class ChunkCache(dict[str, bytes]):
    """``cache[chunk]`` is the ids of any chunk of text, as bytes of ``dtype``, seen before or not.

    The cache normalises a chunk and cuts it into WordPieces only the first time.  It looks up the
    pieces of an unseen chunk (see ``basic``) in the same way: in "tokens;" only "tokens" is new.
    Two generations hold at most ``max_entries`` chunks each.  When the young one is full it becomes
    the old one, and the cache forgets the chunks of the old one that nobody asked for since.
    Raises TextError for a lone surrogate.
    """

    def __init__(
        self,
        basic: BasicTokenizer,
        vocabulary: Vocabulary,
        dtype: npt.DTypeLike,
        max_entries: int = MAX_ENTRIES,
    ) -> None:
        super().__init__()
        ids = np.arange(len(vocabulary), dtype=dtype)
        content, size = ids.tobytes(), ids.itemsize
        of_each = [content[at : at + size] for at in range(0, len(content), size)]
        self._basic = basic
        self._split_word = WordPiece(vocabulary, of_each).split
        self._max_entries = max_entries
        self._old: dict[str, bytes] = {}

    def __missing__(self, chunk: str) -> bytes:
        encoded = self._old.get(chunk)
        if encoded is None:
            encoded = self._encode(chunk)
            if len(chunk) > MAX_CHUNK_LENGTH:
                return encoded
        if len(self) >= self._max_entries:
            self._old = dict(self)
            self.clear()
        self[chunk] = encoded
        return encoded

    def _encode(self, chunk: str) -> bytes:
        if chunk.isalnum() and chunk.isascii():
            word = chunk.lower() if self._basic.do_lower_case else chunk
            pieces = self._split_word(word)
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        parts = self._basic.pieces(chunk)
        if parts != [chunk]:
            return b"".join(map(self.__getitem__, parts))
        words = self._basic.split(chunk)
        return b"".join([piece for word in words for piece in self._split_word(word)])


class BatchEncoder:
    """The ids of many texts at once, uncut and without offsets.

    ``dtype`` is uint16 for a vocabulary of at most 65,536 tokens, else int32.  A pickle holds the
    vocabulary and the settings, but no cache.
    """

    def __init__(self, basic: BasicTokenizer, vocabulary: Vocabulary) -> None:
        self.dtype: np.dtype[Any] = np.dtype(np.uint16 if len(vocabulary) <= 2**16 else np.int32)
        self._basic = basic
        self._vocabulary = vocabulary
        self._cls_id = vocabulary.token_to_id(CLS_TOKEN)
        self._sep_id = vocabulary.token_to_id(SEP_TOKEN)
        self._cache = ChunkCache(basic, vocabulary, self.dtype)

    def encode(
        self, texts: Iterable[str], add_special_tokens: bool, first: int = 0, marked: bool = False
    ) -> tuple[IdArray, Lengths]:
        """(ids (T,), lengths (B,)) of B texts, end to end; ``marked``: special tokens are such."""
        texts = list(texts)
        try:
            if marked and any(map(_SPECIAL.search, texts)):
                return self._encode_marked(texts, add_special_tokens, first)
            if sum(map(len, texts)) < _FEW_CHARACTERS:
                return self._encode_few(texts, add_special_tokens)
            ids, lengths = self._block_encoder.encode(texts)
        except (TextError, TypeError, AttributeError, UnicodeEncodeError):
            # Checking every text beforehand would slow down the calls without an error.
            for index, text in enumerate(texts, first):
                check_text(text, f"text {index}")
            raise
        return self._enclosed(ids, lengths) if add_special_tokens else (ids, lengths)

    @cached_property
    def _block_encoder(self) -> BlockEncoder:
        # Built on first use: its trie of the vocabulary takes 10 to 50 ms.
        return BlockEncoder(self._basic, self._vocabulary, self.dtype)

    def _encode_marked(
        self, texts: list[str], add_special_tokens: bool, first: int
    ) -> tuple[IdArray, Lengths]:
        """The same of texts with special tokens: what stands between these is encoded alone."""
        for index, text in enumerate(texts, first):
            check_text(text, f"text {index}")
        parts = [_SPECIAL.split(text) for text in texts]
        ids, lengths = self.encode([part for each in parts for part in each[::2]], False)
        special = [self._vocabulary.token_to_id(token) for each in parts for token in each[1::2]]
        counts = np.array([len(each) // 2 + 1 for each in parts])
        ends = np.cumsum(counts)
        flat: Any = np.insert(ids, np.delete(np.cumsum(lengths), ends - 1), special)
        lengths = np.add.reduceat(lengths, ends - counts) + counts - 1
        return self._enclosed(flat, lengths) if add_special_tokens else (flat, lengths)

    def _encode_few(self, texts: list[str], add_special_tokens: bool) -> tuple[IdArray, Lengths]:
        ids_of = self._cache.__getitem__
        head = tail = b""
        if add_special_tokens:
            head, tail = (self.dtype.type(each).tobytes() for each in (self._cls_id, self._sep_id))
        parts = [b"".join([head, *map(ids_of, chunks(text)), tail]) for text in texts]
        # A bytearray makes the arrays writable, as torch.from_numpy wants them.
        flat: IdArray = np.frombuffer(bytearray().join(parts), self.dtype)
        lengths = np.fromiter(map(len, parts), np.int64, len(parts)) // self.dtype.itemsize
        return flat, lengths

    def _enclosed(self, ids: IdArray, lengths: Lengths) -> tuple[IdArray, Lengths]:
        """The same with [CLS] and [SEP] around each text."""
        lengths = lengths + 2
        ends = np.cumsum(lengths)
        enclosed = np.empty(len(ids) + 2 * len(lengths), self.dtype)
        is_text = np.ones(len(enclosed), np.bool_)
        for places, index in ((ends - lengths, self._cls_id), (ends - 1, self._sep_id)):
            enclosed[places] = index
            is_text[places] = False
        enclosed[is_text] = ids
        return enclosed, lengths

    def __reduce__(self) -> tuple[Any, ...]:
        return BatchEncoder, (self._basic, self._vocabulary)


def encode_blocks(
    encoder: Any, texts: Sequence[str], num_workers: int, add_special_tokens: bool, marked: bool
) -> Iterator[tuple[IdArray, Lengths]]:
    """(ids, lengths) of each block of texts, in order, from ``num_workers`` processes.

    ``encoder``: has ``encode`` as BatchEncoder's, and can be pickled.
    """
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    starts = range(0, len(texts), _BLOCK)
    with ProcessPoolExecutor(
        min(num_workers, len(starts)) or 1,
        mp_context=get_context("spawn"),
        initializer=_receive,
        initargs=(encoder,),
    ) as pool:
        blocks = (list(texts[start : start + _BLOCK]) for start in starts)
        ways = ([each] * len(starts) for each in (add_special_tokens, marked))
        yield from pool.map(_encode, blocks, starts, *ways)


def _receive(encoder: Any) -> None:
    global _encoder
    _encoder = encoder


def _encode(texts: list[str], first: int, around: bool, marked: bool) -> tuple[IdArray, Lengths]:
    found: tuple[IdArray, Lengths] = _encoder.encode(texts, around, first, marked)
    return found
