"""The fast path from text to ids: a dictionary from raw chunks of text to the bytes of their ids.

A text is cut at spaces, each chunk is looked up as it stands, and the values are joined; a chunk is
normalised and cut into WordPieces on its first sight only.  An unseen chunk is first cut into its
pieces (see ``basic``), which are looked up in the same way: of "(tokens)," only "tokens" is new.
"""

import numpy as np
import numpy.typing as npt

from tidybert.tokenization.basic import BasicTokenizer
from tidybert.tokenization.wordpiece import WordPiece

#: About 40 MB of English; the most that other scripts take is some 100 MB.
MAX_ENTRIES = 2**18
#: Longer chunks (addresses, lines of Chinese) seldom come twice, so they are worked out each time.
MAX_CHUNK_LENGTH = 32


class ChunkCache(dict[str, bytes]):
    """``cache[chunk]`` is the ids of any chunk of text, as bytes of ``dtype``, seen before or not.

    At ``max_entries`` chunks the cache starts again from none.  Raises TextError for a lone
    surrogate.
    """

    def __init__(
        self,
        basic: BasicTokenizer,
        wordpiece: WordPiece,
        vocab_size: int,
        dtype: npt.DTypeLike,
        max_entries: int = MAX_ENTRIES,
    ) -> None:
        super().__init__()
        self._basic = basic
        self._split_word = wordpiece.split
        self._max_entries = max_entries
        one_each = np.arange(vocab_size, dtype=dtype)
        size = one_each.itemsize
        buffer = one_each.tobytes()
        self._id_bytes = [buffer[at : at + size] for at in range(0, len(buffer), size)]

    def __missing__(self, chunk: str) -> bytes:
        if chunk.isalnum() and chunk.isascii():
            encoded = self._encode_word(chunk.lower() if self._basic.do_lower_case else chunk)
        else:
            pieces = self._basic.pieces(chunk)
            if pieces == [chunk]:
                encoded = b"".join(map(self._encode_word, self._basic.split(chunk)))
            else:
                encoded = b"".join(map(self.__getitem__, pieces))
        if len(chunk) <= MAX_CHUNK_LENGTH:
            if len(self) >= self._max_entries:
                self.clear()
            self[chunk] = encoded
        return encoded

    def _encode_word(self, word: str) -> bytes:
        ids = self._split_word(word)
        if len(ids) == 1:
            return self._id_bytes[ids[0]]
        return b"".join([self._id_bytes[index] for index in ids])
