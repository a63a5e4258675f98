"""The path from a few short texts to ids: a dictionary from raw chunks to the bytes of their ids.

A text is cut at spaces, each chunk is looked up unchanged, and the values are joined.  A chunk is
normalised and cut into WordPieces only when it is first seen.  An unseen chunk is cut into its
pieces first (see ``basic``), which are looked up in the same way: in "tokens;" only "tokens" is
new.

A sentence takes a few microseconds here, where ``block_encoder`` takes a hundred to start at all,
and then goes through many texts three times as fast.
"""

import numpy as np
import numpy.typing as npt

from tidybert.tokenization.basic import BasicTokenizer
from tidybert.tokenization.vocabulary import Vocabulary
from tidybert.tokenization.wordpiece import WordPiece

#: Of each of the two generations: together about 20 MB of English, or 40 MB of other scripts.
MAX_ENTRIES = 2**16
#: Longer chunks (addresses, lines of Chinese) seldom come twice, so they are worked out each time.
MAX_CHUNK_LENGTH = 32


def chunks(text: str) -> list[str]:
    """Cut a text at spaces and at the commonest marks, whose neighbours are thus met more often.

    Which marks those are is a matter of speed alone: the ids are the same for any.
    """
    return (
        text.replace(",", " , ")
        .replace(".", " . ")
        .replace("-", " - ")
        .replace("(", " ( ")
        .replace(")", " ) ")
        .replace('"', ' " ')
        .split(" ")
    )


class ChunkCache(dict[str, bytes]):
    """``cache[chunk]`` is the ids of any chunk of text, as bytes of ``dtype``, seen before or not.

    There are two generations of at most ``max_entries`` chunks.  When the young one is full it
    becomes the old one, and what is not asked for before that happens again is forgotten.
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
        self._basic = basic
        self._split_word = WordPiece(vocabulary, [index.tobytes() for index in ids]).split
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
