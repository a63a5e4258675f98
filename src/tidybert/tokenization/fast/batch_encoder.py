"""Many texts to ids by the shorter of two paths: a dictionary for a few, arrays for many."""

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tidybert.errors import TextError
from tidybert.tokenization.basic import BasicTokenizer, check_text
from tidybert.tokenization.fast.block_encoder import BlockEncoder
from tidybert.tokenization.fast.chunk_cache import ChunkCache, chunks
from tidybert.tokenization.vocabulary import CLS_TOKEN, SEP_TOKEN, Vocabulary

IdArray = npt.NDArray[np.uint16] | npt.NDArray[np.int32]
Lengths = npt.NDArray[np.int64]

# With fewer characters in one call the dictionary is faster than the arrays (measured on Wikipedia:
# up to 8,000 if every chunk was met before, up to 30,000 if none was).
_FEW_CHARACTERS = 2**14


class BatchEncoder:
    """The ids of many texts at once, uncut and without offsets.

    ``dtype`` is uint16 for a vocabulary of at most 65,536 tokens, else int32.  A pickle holds the
    vocabulary and the settings; what was learnt of the texts stays behind.
    """

    def __init__(self, basic: BasicTokenizer, vocabulary: Vocabulary) -> None:
        self.dtype: np.dtype[Any] = np.dtype(np.uint16 if len(vocabulary) <= 2**16 else np.int32)
        self._basic = basic
        self._vocabulary = vocabulary
        self._cls_id = vocabulary.token_to_id(CLS_TOKEN)
        self._sep_id = vocabulary.token_to_id(SEP_TOKEN)
        self._cache = ChunkCache(basic, vocabulary, self.dtype)

    def encode(
        self, texts: Iterable[str], add_special_tokens: bool, first: int = 0
    ) -> tuple[IdArray, Lengths]:
        """(ids (T,), lengths (B,)) of B texts, laid end to end.

        Raises TextError for a text that cannot be tokenised; it counts texts from ``first``.
        """
        texts = list(texts)
        try:
            if sum(map(len, texts)) < _FEW_CHARACTERS:
                return self._encode_few(texts, add_special_tokens)
            ids, lengths = self._block_encoder.encode(texts)
        except (TextError, TypeError, AttributeError, UnicodeEncodeError):
            # Looking at every text beforehand would cost more than the error is worth.
            for index, text in enumerate(texts, first):
                check_text(text, f"text {index}")
            raise
        return self._enclosed(ids, lengths) if add_special_tokens else (ids, lengths)

    @cached_property
    def _block_encoder(self) -> BlockEncoder:
        # Built on first use: its trie of the vocabulary takes 10 to 50 ms.
        return BlockEncoder(self._basic, self._vocabulary, self.dtype)

    def _encode_few(self, texts: list[str], add_special_tokens: bool) -> tuple[IdArray, Lengths]:
        ids_of = self._cache.__getitem__
        if add_special_tokens:
            head = self.dtype.type(self._cls_id).tobytes()
            tail = self.dtype.type(self._sep_id).tobytes()
            parts = [b"".join([head, *map(ids_of, chunks(text)), tail]) for text in texts]
        else:
            parts = [b"".join(map(ids_of, chunks(text))) for text in texts]
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
