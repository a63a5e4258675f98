"""Postings: in which texts a word is, and how often; BM25 ranks texts by them.

A segment has the postings of some neighbouring texts, in order of the words' hashes, and never
changes.  A short one is made again, longer, when as many texts have come after it, so there are
few.  Scores are those of Robertson et al. (1994) with Lucene's idf, which is computed when a search
reads.  n texts, w words and p postings of a segment.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from tidybert.search.nearest_vectors import Indices, Scores
from tidybert.search.words import words_of
from tidybert.storage.journal import Count

WORDS_FILE: Final = "words.npy"
ENDS_FILE: Final = "word_ends.npy"
PLACES_FILE: Final = "postings.npy"
COUNTS_FILE: Final = "counts.npy"
FILES: Final = {
    WORDS_FILE: "uint64", ENDS_FILE: "uint32", PLACES_FILE: "uint16", COUNTS_FILE: "uint8"
}  # fmt: skip
"""What an index keeps of words, with the types of the numbers: two files a word, two a posting."""

# A text's place in a segment takes two bytes, and a segment is made in memory.
_MOST_TEXTS: Final = 2**16
_MOST_WORDS: Final = 2**22
_MOST_COUNTED: Final = 255
_K1: Final = 1.5
_B: Final = 0.75
# From such a share of all texts on it pays to ask which may still be among the best.
_MANY: Final = 1 / 4
# Looking a text up among postings takes about as long as going through so many.
_LOOKED_UP: Final = 8

Arrays = Mapping[str, npt.NDArray[Any]]
Allowed = npt.NDArray[np.bool_] | None
_Postings = tuple[int, npt.NDArray[np.uint16], npt.NDArray[np.uint8]]


class Segment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the texts, the words and the postings of a segment begin and end."""

    texts: tuple[Count, Count] = (0, 0)
    words: tuple[Count, Count] = (0, 0)
    postings: tuple[Count, Count] = (0, 0)

    def stays(self, num_texts: int) -> bool:
        """Whether it is not made again when there are so many texts."""
        begin, end = self.texts
        num_postings = self.postings[1] - self.postings[0]
        is_full = end - begin == _MOST_TEXTS or num_postings > _MOST_WORDS // 8
        return is_full or end - begin > num_texts - end

    def next(self, first: int, num_texts: int, rows: Arrays) -> "Segment":
        """The segment of texts from ``first`` on whose rows are written after those of this one."""
        words, postings = self.words[1], self.postings[1]
        return Segment(
            (first, first + num_texts),
            (words, words + len(rows[WORDS_FILE])),
            (postings, postings + len(rows[PLACES_FILE])),
        )


def segments_of(texts: Iterable[str]) -> Iterator[tuple[int, Arrays]]:
    """How many texts each new segment has, and its rows by file."""
    numbers: defaultdict[str, int] = defaultdict(count().__next__)
    found: list[int] = []
    ends: list[int] = []
    for text in texts:
        found.extend(map(numbers.__getitem__, words_of(text)))
        ends.append(len(found))
        if len(ends) == _MOST_TEXTS or len(found) >= _MOST_WORDS:
            yield len(ends), _rows(numbers, found, ends)
            numbers, found, ends = defaultdict(count().__next__), [], []
    if ends:
        yield len(ends), _rows(numbers, found, ends)


def _rows(words: Iterable[str], found: Sequence[int], ends: Sequence[int]) -> Arrays:
    """By file the rows of texts whose words, numbers in ``words``, end at ``ends``."""
    hashes, order = np.unique(_hashes(words), return_inverse=True)
    places = np.repeat(np.arange(len(ends), dtype=np.uint64), np.diff(ends, prepend=0))
    keys = order.astype(np.uint64)[np.array(found, dtype=np.int64)] << np.uint64(16) | places
    keys, counts = np.unique(keys, return_counts=True)
    numbers = np.arange(len(hashes), dtype=np.uint64)
    return {
        WORDS_FILE: hashes,
        ENDS_FILE: np.searchsorted(keys >> np.uint64(16), numbers, side="right").astype(np.uint32),
        PLACES_FILE: keys.astype(np.uint16),
        COUNTS_FILE: np.minimum(counts, _MOST_COUNTED).astype(np.uint8),
    }


def _hashes(words: Iterable[str]) -> npt.NDArray[np.uint64]:
    """Eight bytes that stand for each word; among a million words hardly two have the same."""
    content = (blake2b(each.encode("utf-8", "surrogatepass"), digest_size=8) for each in words)
    return np.frombuffer(b"".join(each.digest() for each in content), "<u8").astype(np.uint64)


@dataclass(frozen=True)
class _Part:
    """A segment's rows; ``ends`` begins with 0, and ``first`` is the position of its first text."""

    first: int
    words: npt.NDArray[np.uint64]
    ends: Indices
    places: npt.NDArray[np.uint16]
    counts: npt.NDArray[np.uint8]

    def of(self, word: np.uint64) -> slice:
        """Where a word's postings are."""
        at = int(self.words.searchsorted(word))
        if at == len(self.words) or self.words[at] != word:
            return slice(0)
        return slice(int(self.ends[at]), int(self.ends[at + 1]))


class WordSearch:
    """The postings of an index, mapped from its files; ``is_live`` (n,) says which texts count."""

    def __init__(
        self, segments: Sequence[Segment], arrays: Arrays, is_live: npt.NDArray[np.bool_]
    ) -> None:
        self._is_live, self._num_live = is_live, int(np.count_nonzero(is_live))
        self._parts: list[_Part] = []
        lengths = np.zeros(len(is_live), dtype=np.float32)
        for each in segments:
            if each.words[0] == each.words[1]:
                continue
            words, postings = slice(*each.words), slice(*each.postings)
            ends = np.concatenate([[0], arrays[ENDS_FILE][words]]).astype(np.int64)
            places, counts = arrays[PLACES_FILE][postings], arrays[COUNTS_FILE][postings]
            part = lengths[slice(*each.texts)]
            part[:] = np.bincount(places, counts, len(part))
            self._parts.append(
                _Part(each.texts[0], arrays[WORDS_FILE][words], ends, places, counts)
            )
        mean = float(lengths[is_live].mean()) if self._num_live else 0.0
        self._norms = np.float32(_K1 * (1 - _B)) + lengths * np.float32(_K1 * _B / (mean or 1.0))

    def best(self, query: str, most: int, allowed: Allowed = None) -> tuple[Indices, Scores]:
        """Positions and BM25 of the texts with words of a query, the best ``most`` first.

        Equal ones are in the order of the texts.  ``allowed`` (n,) says which texts may be found;
        how rare a word is does not depend on it.
        """
        counted = self._is_live if allowed is None else allowed
        scores = np.zeros(len(counted), dtype=np.float32)
        words = self._rarest_first(query)
        # No text can get more by the words that are left.
        rest = sum(weight for weight, _ in words)
        left: Indices | None = None
        for weight, postings in words:
            if left is None:
                left = _hopeful(
                    scores, counted, most, rest, sum(len(each) for _, each, _ in postings)
                )
            for first, places, counts in postings:
                own = slice(first, first + _MOST_TEXTS)
                if left is not None:
                    wanted = left[slice(*left.searchsorted([own.start, own.stop]))] - first
                    at = places.searchsorted(wanted.astype(np.uint16))
                    at = at[places.take(at, mode="clip") == wanted]
                    places, counts = places[at], counts[at]
                # NumPy takes these fastest.
                at, part, some = places.astype(np.intp), scores[own], counts.astype(np.float32)
                some /= some + self._norms[own].take(at)
                some *= np.float32(weight)
                some += part.take(at)
                part[at] = some
            rest -= weight
        found = np.flatnonzero((scores > 0) & counted) if left is None else left
        if len(found) > most:
            values = scores[found]
            found = found[values >= np.partition(values, len(found) - most)[len(found) - most]]
        order = np.lexsort((found, -scores[found]))[:most]
        return found[order], scores[found[order]]

    def _rarest_first(self, query: str) -> list[tuple[float, list[_Postings]]]:
        """What each word of a query weighs, and its postings: a segment's first text, and rows."""
        words = Counter(words_of(query))
        found = []
        for word, times in zip(_hashes(words), words.values(), strict=True):
            rows = [(part, part.of(word)) for part in self._parts]
            postings = [
                (part.first, part.places[row], part.counts[row])
                for part, row in rows
                if row.stop > (row.start or 0)
            ]
            num = sum(len(places) for _, places, _ in postings)
            if num and self._num_live < len(self._is_live):
                num = sum(
                    int(np.count_nonzero(self._is_live[first : first + _MOST_TEXTS][places]))
                    for first, places, _ in postings
                )
            if num:
                idf = np.log(1 + (self._num_live - num + 0.5) / (num + 0.5))
                found.append((times * float(idf), postings))
        return sorted(found, key=lambda each: -each[0])


def _hopeful(
    scores: Scores, counted: npt.NDArray[np.bool_], most: int, rest: float, num_postings: int
) -> Indices | None:
    """The texts that may still be among the best ``most`` where each gets at most ``rest`` more.

    None where many may, so that it is as fast to go through a word's postings.
    """
    if num_postings < _MANY * len(scores):
        return None
    found = np.flatnonzero((scores > 0) & counted)
    if len(found) < most:
        return None
    values, rest = scores[found], 1.0001 * rest
    least = np.partition(values, len(found) - most)[len(found) - most]
    found = found[values >= least - rest]
    return found if least > rest and len(found) * _LOOKED_UP < num_postings else None
