"""How often each normalised word and each character occurs in a text of any size.

Counts raw chunks unchanged and normalises each once, like ``ChunkCache``.  Memory is bounded: if
too many different words occur, WordCounts forgets the rarest (lossy counting: Manku and Motwani,
2002), and ``num_forgotten`` counts them.  Equal texts in equal order give equal counts.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import accumulate
from typing import Final

from tidybert.tokenization.basic import BasicTokenizer
from tidybert.tokenization.fast.batch_encoder import chunks
from tidybert.tokenization.wordpiece import MAX_CHARS_PER_WORD

MAX_RAW_CHUNKS: Final = 2**19
MAX_RAW_CHARACTERS: Final = 2**27
#: A longer mean (English has 5) shows a script without spaces, whose chunks seldom come twice.
MAX_MEAN_CHUNK: Final = 12
#: Some 150 MB of English words; after forgetting, half as many.
MAX_WORDS: Final = 2**20


class WordCounts:
    """Counts of normalised words; read the attributes after ``finish``.

    words: how often each word occurs, without those forgotten and those too long for WordPiece.
    num_forgotten: occurrences of forgotten words, at most ``max_missed`` of any one.
    num_too_long: occurrences of words longer than 100 characters, which WordPiece cannot split.
    """

    def __init__(
        self,
        basic: BasicTokenizer,
        *,
        max_words: int = MAX_WORDS,
        max_raw_chunks: int = MAX_RAW_CHUNKS,
    ) -> None:
        self.words: dict[str, int] = {}
        self.num_forgotten = self.max_missed = self.num_too_long = 0
        self._basic = basic
        self._max_words = max_words
        self._max_raw_chunks = max_raw_chunks
        self._raw: Counter[str] = Counter()
        self._num_raw_characters = 0
        # Characters of words that are no longer in ``words``: first in a word, and elsewhere.
        self._first: Counter[str] = Counter()
        self._inner: Counter[str] = Counter()

    def add(self, texts: Iterable[str]) -> None:
        """Count the words of texts; this or ``finish`` raises TextError for a lone surrogate."""
        raw = self._raw
        for text in texts:
            self._num_raw_characters += len(text)
            found = chunks(text)
            if len(text) > MAX_MEAN_CHUNK * len(found):
                found = self._basic.pieces(text)
            raw.update(found)
        if len(raw) > self._max_raw_chunks or self._num_raw_characters > MAX_RAW_CHARACTERS:
            self.finish()

    def finish(self) -> None:
        """Bring the attributes up to date; more texts may follow."""
        words = self.words
        for chunk, count in self._raw.items():
            for word in self._basic.split(chunk):
                if len(word) > MAX_CHARS_PER_WORD:
                    self.num_too_long += count
                    _count_characters({word: count}, self._first, self._inner)
                else:
                    words[word] = words.get(word, 0) + count
        self._raw.clear()
        self._num_raw_characters = 0
        if len(words) > self._max_words:
            self._forget()

    @property
    def num_words(self) -> int:
        """Occurrences of all words."""
        return sum(self.words.values()) + self.num_forgotten + self.num_too_long

    def characters(self) -> tuple[Counter[str], Counter[str]]:
        """How often each character comes first in a word, and elsewhere in one, over all words."""
        first, inner = self._first.copy(), self._inner.copy()
        _count_characters(self.words, first, inner)
        return first, inner

    def _forget(self) -> None:
        """Forget the rarest words, those of equal counts alike, until at most half are left."""
        with_count = Counter(self.words.values())
        excess = len(self.words) - self._max_words // 2
        counts = sorted(with_count)
        sums = accumulate(with_count[count] for count in counts)
        limit = next(count for count, sum_ in zip(counts, sums, strict=True) if sum_ >= excess)
        forgotten_words = {word: count for word, count in self.words.items() if count <= limit}
        _count_characters(forgotten_words, self._first, self._inner)
        self.num_forgotten += sum(forgotten_words.values())
        self.max_missed += limit
        self.words = {word: count for word, count in self.words.items() if count > limit}


def _count_characters(words: dict[str, int], first: Counter[str], inner: Counter[str]) -> None:
    for word, count in words.items():
        first[word[0]] += count
        for character in word[1:]:
            inner[character] += count
