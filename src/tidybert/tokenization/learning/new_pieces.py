"""New pieces for an existing vocabulary: those that save a text most of its pieces.

A candidate joins neighbouring pieces of a word: to a whole word, its beginning, or a continuation.
The one that saves most comes first, then the one that saves most beside it, and so on; splitting
the words again gives the savings (lazy greedy selection: Minoux, 1978).
"""

import heapq
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from tidybert.tokenization.vocabulary import CONTINUATION, UNK_TOKEN, Vocabulary
from tidybert.tokenization.wordpiece import WordPiece

#: Words to choose by: those that take most pieces in all.
MAX_WORDS: Final = 2**17
# A spelling that occurs once or twice says nothing about other texts.
MIN_SAVED: Final = 3
_UNUSED = re.compile(r"\[unused\d+\]")


@dataclass(frozen=True, slots=True)
class NewPiece:
    """A piece to add to the vocabulary.

    token: with ## if it continues a word.
    replaces: the tokens that spelled it before; [UNK] for a character that had none.
    saved: how many pieces it saves the text, beside the pieces chosen before it.
    """

    token: str
    replaces: tuple[str, ...]
    saved: int


def choose_pieces(
    words: Mapping[str, int], vocabulary: Vocabulary, num_pieces: int
) -> list[NewPiece]:
    """The pieces that save most, the most useful first: ``num_pieces``, or all that save three.

    words: normalised words and how often each occurs.  A word that is [UNK] counts as its
    characters, and once more for each of them that has no piece, so that making it known saves
    pieces too.
    """
    text = _Text(words, vocabulary)
    estimates, replaces = text.candidates()
    heap = [(-saved, token) for token, saved in estimates.items() if saved >= MIN_SAVED]
    heapq.heapify(heap)
    pieces: list[NewPiece] = []
    while heap and len(pieces) < num_pieces:
        _, token = heapq.heappop(heap)
        saved = text.saving(token)
        if saved < MIN_SAVED:
            continue
        if heap and (-saved, token) > heap[0]:
            heapq.heappush(heap, (-saved, token))
        else:
            text.take(token)
            pieces.append(NewPiece(token, replaces[token], saved))
    return pieces


def extend_vocabulary(
    vocabulary: Vocabulary, pieces: Sequence[NewPiece]
) -> tuple[Vocabulary, list[int]]:
    """The vocabulary with the pieces, and their ids: the [unused] places first, then new ones."""
    unused = [place for place, token in enumerate(vocabulary.tokens) if _UNUSED.fullmatch(token)]
    num_appended = max(0, len(pieces) - len(unused))
    size = len(vocabulary)
    places = [*unused[: len(pieces)], *range(size, size + num_appended)]
    tokens = [*vocabulary.tokens, *[""] * num_appended]
    for place, piece in zip(places, pieces, strict=True):
        tokens[place] = piece.token
    return Vocabulary(tokens), places


class _GrowingWordPiece(WordPiece[str]):
    """WordPiece to tokens, with a vocabulary that gains and loses tokens."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(vocabulary, vocabulary.tokens)

    def __contains__(self, token: str) -> bool:
        return token in self._first

    def add(self, token: str) -> None:
        self._first[token] = token
        if token.startswith(CONTINUATION):
            self._rest[token.removeprefix(CONTINUATION)] = token
        self._longest = max(self._longest, len(token))

    def remove(self, token: str) -> None:
        del self._first[token]
        if token.startswith(CONTINUATION):
            del self._rest[token.removeprefix(CONTINUATION)]

    def missing(self, word: str) -> list[str]:
        """The characters of a word that have no piece, as tokens."""
        tokens = [word[0], *(CONTINUATION + character for character in word[1:])]
        return [token for token in tokens if token not in self]

    def cost(self, word: str) -> int:
        """The pieces of a word; for an unknown word its characters, those without a piece twice."""
        pieces = self.split(word)
        return len(word) + len(self.missing(word)) if pieces == [UNK_TOKEN] else len(pieces)


class _Text:
    """The words that may gain, and the cost of each with the vocabulary as it grows."""

    def __init__(self, words: Mapping[str, int], vocabulary: Vocabulary) -> None:
        self._wordpiece = _GrowingWordPiece(vocabulary)
        costs = {word: self._wordpiece.cost(word) for word in words}
        costly = [word for word, cost in costs.items() if cost > 1]
        costly.sort(key=lambda word: (-words[word] * (costs[word] - 1), word))
        self._words = sorted(costly[:MAX_WORDS])
        self._counts = [words[word] for word in self._words]
        self._costs = [costs[word] for word in self._words]
        # A space before each word, so that a place in the text gives the word and the place in it.
        self._spaced = "".join(f" {word}" for word in self._words)
        self._starts = [0, *accumulate(len(word) + 1 for word in self._words)]

    def candidates(self) -> tuple[dict[str, int], dict[str, tuple[str, ...]]]:
        """About the most that each candidate would save, and the tokens that spell it so far.

        Of several spellings, the most frequent one.
        """
        saved: Counter[str] = Counter()
        replaces: dict[str, tuple[str, ...]] = {}
        for number in sorted(range(len(self._words)), key=lambda number: -self._counts[number]):
            word, count = self._words[number], self._counts[number]
            pieces = self._wordpiece.split(word)
            if pieces == [UNK_TOKEN]:
                for token in self._wordpiece.missing(word):
                    saved[token] += count
                    replaces[token] = (UNK_TOKEN,)
                continue
            for first, piece in enumerate(pieces):
                token = piece
                for last in range(first + 1, len(pieces)):
                    token += pieces[last].removeprefix(CONTINUATION)
                    saved[token] += count * (last - first)
                    if token not in replaces:
                        replaces[token] = tuple(pieces[first : last + 1])
        # A beginning also serves words whose pieces so far end elsewhere.
        gains = (count * (cost - 1) for count, cost in zip(self._counts, self._costs, strict=True))
        sums = [0, *accumulate(gains)]
        for token in saved:
            if not token.startswith(CONTINUATION):
                numbers = self._beginning_with(token)
                saved[token] = sums[numbers.stop] - sums[numbers.start]
        return saved, replaces

    def saving(self, token: str) -> int:
        """How many fewer pieces the text has with the token."""
        self._wordpiece.add(token)
        saved = sum(
            self._counts[number] * (self._costs[number] - self._wordpiece.cost(self._words[number]))
            for number in self._holding(token)
        )
        self._wordpiece.remove(token)
        return saved

    def take(self, token: str) -> None:
        """Add the token for good."""
        self._wordpiece.add(token)
        for number in self._holding(token):
            self._costs[number] = self._wordpiece.cost(self._words[number])

    def _holding(self, token: str) -> Iterator[int]:
        """The numbers of the words that begin with the token, or in which it may continue."""
        if not token.startswith(CONTINUATION):
            yield from self._beginning_with(token)
            return
        text = token.removeprefix(CONTINUATION)
        place = self._spaced.find(text)
        while place >= 0:
            number = bisect_right(self._starts, place) - 1
            if place > self._starts[number] + 1:
                yield number
                place = self._starts[number + 1]
            place = self._spaced.find(text, place + 1)

    def _beginning_with(self, text: str) -> range:
        def is_beyond(word: str) -> bool:
            return word > text and not word.startswith(text)

        first = bisect_left(self._words, text)
        return range(first, bisect_left(self._words, True, first, key=is_beyond))
