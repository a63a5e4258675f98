"""Learn a WordPiece vocabulary from counts of words, with the trainer of the tokenizers library.

That trainer begins with single characters and joins the most frequent pair of pieces, over and over
(Sennrich et al., 2016, section 3.2; Google never published its own).  The numbers of pieces decide
between two equally frequent pairs, and the trainer numbers the characters inside words in the order
of a hash table.  This module gives it those in order, so that equal counts give equal vocabularies.
It has the trainer join more pieces than fit, and keeps those that WordPiece uses (``pruned``).

``measure_fit`` counts how well a vocabulary fits a text.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Final

import numpy as np
import numpy.typing as npt

from tidybert.errors import DataError, UsageError, param
from tidybert.tokenization.basic import BasicTokenizer
from tidybert.tokenization.fast.batch_encoder import chunks
from tidybert.tokenization.tokenizer import BertTokenizer
from tidybert.tokenization.vocabulary import CONTINUATION, SPECIAL_TOKENS, UNK_TOKEN, Vocabulary
from tidybert.tokenization.wordpiece import MAX_CHARS_PER_WORD

# How often each normalised word and each character occurs in a text of any size.
#
# Counts raw chunks unchanged and normalises each once, like ``ChunkCache``.  Memory is bounded: if
# too many different words occur, WordCounts forgets the rarest (lossy counting: Manku and Motwani,
# 2002), and ``num_forgotten`` counts them.  Equal texts in equal order give equal counts.

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


# Which joined pieces a vocabulary keeps: those whose loss would cost most tokens.
#
# The trainer joins pairs of pieces, and WordPiece takes the longest piece that fits from the left.
# So some pieces that were frequent when they were joined are hardly ever taken: ``##atio`` once
# there is ``##ation``.  This drops them in a few rounds, because each one dropped changes how often
# others are taken.  Kudo (2018, "Subword regularization", section 3.2) learns too many and drops by
# the loss of a unigram model; here the cost of a piece is counted in tokens.

_ROUNDS: Final = 4
# Of the pieces too many, those left after each round but the last.
_LEFT: Final = 0.4


def pruned(
    merged: Sequence[str], single: Sequence[str], words: Mapping[str, int], size: int
) -> list[str]:
    """``size`` of the joined pieces, in their order; all of them where there are no more."""
    kept = list(merged)
    for round_ in range(_ROUNDS):
        if len(kept) <= size:
            break
        cost = _costs(kept, single, words)
        is_last = round_ == _ROUNDS - 1
        goal = size if is_last else size + int((len(kept) - size) * _LEFT)
        # Of equals the one that was joined earlier stays.
        chosen = np.sort(np.argsort(-cost, kind="stable")[:goal])
        kept = [kept[place] for place in chosen]
    return kept


def _costs(
    merged: Sequence[str], single: Sequence[str], words: Mapping[str, int]
) -> npt.NDArray[np.int64]:
    """(M,) int64: the tokens that the words would take more without each joined piece."""
    tokens = [*SPECIAL_TOKENS, *single, *merged]
    # The words are normalised already.
    tokenizer = BertTokenizer(Vocabulary(tokens), do_lower_case=False, strip_accents=False)
    ids, offsets = tokenizer.encode_flat(list(words), add_special_tokens=False)
    times = np.repeat(np.fromiter(words.values(), np.int64, len(words)), np.diff(offsets))
    used = np.bincount(ids, weights=times, minlength=len(tokens)).astype(np.int64)
    known = {*single, *merged}
    more = [_num_parts(piece, known) - 1 for piece in merged]
    return used[-len(merged) :] * np.array(more, np.int64)


def _num_parts(piece: str, known: set[str]) -> int:
    """How many of the other pieces WordPiece takes for a piece's characters."""
    inside = piece.startswith(CONTINUATION)
    text = piece.removeprefix(CONTINUATION)
    start = count = 0
    while start < len(text):
        head = CONTINUATION if inside or start else ""
        longest = len(text) if start else len(text) - 1
        ends = range(longest, start, -1)
        start = next(end for end in ends if head + text[start:end] in known)
        count += 1
    return count


#: The published vocabularies have [PAD] first and the other special tokens after this many places.
NUM_PLACES: Final = 99
#: In a smaller vocabulary the first tokens and the characters leave no room for words.
MIN_SIZE: Final = 1000
DEFAULT_COVERAGE: Final = 0.999975
#: The trainer takes 0.8 KB of memory for each English word.
MAX_TRAINED_WORDS: Final = 2**19
#: The trainer gets a word as often as it occurs, and takes a second for 2 to 7 million.
MAX_GIVEN: Final = 2**27
# A piece seen once says nothing about other texts.
MIN_FREQUENCY: Final = 2
# More joined pieces for the pruning to choose from; half again as many would gain 0.1%.
_SPARE: Final = 1.3
_REPEATED: Final = 1000


@dataclass(frozen=True)
class LearntVocabulary:
    """A vocabulary, and the parts of the text that it was not learnt from.

    num_characters: different characters of the text, apart at the beginning of a word and inside.
    dropped_characters: those without a piece, the most frequent first, with ## where they are
        inside a word; their words are [UNK].
    num_dropped: occurrences of those characters.
    num_left_out: occurrences of the words that the trainer did not get: forgotten in counting, too
        long, too rare, or with a dropped character.
    """

    vocabulary: Vocabulary
    num_characters: int
    dropped_characters: tuple[str, ...]
    num_dropped: int
    num_left_out: int


def train_vocabulary(
    counts: WordCounts, size: int = 30522, *, character_coverage: float = DEFAULT_COVERAGE
) -> LearntVocabulary:
    """Learn at most ``size`` tokens; fewer if no further pair of pieces occurs twice.

    Every character of the text gets a piece, except the rarest that together make up less than
    1 - ``character_coverage`` of it; the pieces of characters take at most half of the room.
    """
    check_training(size, character_coverage)
    counts.finish()
    # How often each character begins a word, and with ## before it how often it is inside one.
    first, inner = counts.characters()
    found = Counter(first)
    for character, count in inner.items():
        found[CONTINUATION + character] = count
    if not found:
        raise DataError("the text has no words to learn a vocabulary from")
    room = size - len(SPECIAL_TOKENS)
    expected = _expected(found)
    ranked = sorted(expected, key=lambda piece: (-expected[piece], piece))
    kept = _kept_characters(ranked, expected, character_coverage, room // 2)
    given = _given_words(counts.words, kept)
    # Plain characters before those inside words.
    single = sorted(kept, key=lambda piece: (piece.startswith(CONTINUATION), piece))
    merged = _merge(given, single, math.ceil(_SPARE * room))
    pieces = [*single, *pruned(merged, single, given, room - len(single))]
    dropped = tuple(piece for piece in ranked if piece in found and piece not in kept)
    return LearntVocabulary(
        Vocabulary(_placed(pieces)),
        num_characters=len(found),
        dropped_characters=dropped,
        num_dropped=sum(found[piece] for piece in dropped),
        num_left_out=counts.num_words - sum(counts.words[word] for word in given),
    )


def check_training(size: int, character_coverage: float) -> None:
    """Raise UsageError for a size without room for words, or a coverage that is not a share."""
    if size < MIN_SIZE:
        raise UsageError(
            f"{param('size', size)}: expected at least {MIN_SIZE:,}: each character takes one "
            "place or two, and words need some too"
        )
    if not 0 < character_coverage <= 1:
        raise UsageError(
            f"{param('character_coverage')} {character_coverage:g}: expected a fraction above 0 "
            "and at most 1"
        )


def _expected(found: Counter[str]) -> Counter[str]:
    """The counts, where a character inside words is expected to begin one in a hundred times."""
    expected = found.copy()
    for piece, count in found.items():
        if piece.startswith(CONTINUATION):
            character = piece.removeprefix(CONTINUATION)
            expected[character] = max(expected[character], math.ceil(count / 100))
    return expected


def _kept_characters(
    ranked: list[str], expected: Counter[str], coverage: float, max_pieces: int
) -> set[str]:
    """The pieces of the most frequent characters up to the coverage, or to ``max_pieces``."""
    kept: set[str] = set()
    uncovered = expected.total()
    allowed = (1 - coverage) * uncovered
    for piece in ranked[:max_pieces]:
        if uncovered <= allowed:
            break
        kept.add(piece)
        uncovered -= expected[piece]
    return kept


def _given_words(words: dict[str, int], kept: set[str]) -> dict[str, int]:
    """The words to learn from and how often to give each, so that time and memory are bounded."""
    known = [
        (word, count)
        for word, count in words.items()
        if kept.issuperset([word[0], *(CONTINUATION + each for each in word[1:])])
    ]
    known.sort(key=lambda item: (-item[1], item[0]))
    known = known[:MAX_TRAINED_WORDS]
    divisor = max(1.0, sum(count for _, count in known) / MAX_GIVEN)
    return {word: times for word, count in known if (times := round(count / divisor))}


def _placed(pieces: list[str]) -> list[str]:
    """The tokens of the vocabulary: pieces also take the places that published ones leave unused.

    So the special tokens have their published ids.
    """
    before = pieces[:NUM_PLACES]
    before += [f"[unused{number}]" for number in range(NUM_PLACES - len(before))]
    return [SPECIAL_TOKENS[0], *before, *SPECIAL_TOKENS[1:], *pieces[NUM_PLACES:]]


def _merge(given: dict[str, int], single: list[str], room: int) -> list[str]:
    """The pieces that the trainer joins, in its order; ``room`` with those of characters."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token=UNK_TOKEN))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    # The trainer has every character as it begins a word too, which a piece inside may not need.
    alphabet = sorted({piece.removeprefix(CONTINUATION) for piece in single})
    continuations = [piece for piece in single if piece.startswith(CONTINUATION)]
    trainer = trainers.WordPieceTrainer(
        vocab_size=room - len(single) + len(alphabet) + len(continuations),
        min_frequency=MIN_FREQUENCY,
        show_progress=False,
        # The trainer's own limit chooses among equally rare characters at random.
        limit_alphabet=len(alphabet),
        initial_alphabet=alphabet,
        # Not special, but the trainer numbers only special tokens beforehand, in this order.
        special_tokens=continuations,
        continuing_subword_prefix=CONTINUATION,
    )
    tokenizer.train_from_iterator(_repeated(given), trainer)
    ids = tokenizer.get_vocab()
    known = {*alphabet, *continuations}
    return [piece for piece in sorted(ids, key=ids.__getitem__) if piece not in known]


def _repeated(given: dict[str, int]) -> Iterator[str]:
    """Lines that hold each word as often as the trainer gets it."""
    for word, times in given.items():
        spaced = f"{word} "
        for _ in range(times // _REPEATED):
            yield spaced * _REPEATED
        yield spaced * (times % _REPEATED)


@dataclass(frozen=True)
class Fit:
    """Counts over a text; words are normalised and split at punctuation."""

    num_characters: int
    num_words: int
    num_tokens: int
    num_unknown: int

    @property
    def characters_per_token(self) -> float:
        """Characters of the raw text, with spaces, to a token; nan for a text without words."""
        return self.num_characters / self.num_tokens if self.num_tokens else math.nan

    @property
    def pieces_per_word(self) -> float:
        """1 if every word is one piece; [UNK] is one piece."""
        return self.num_tokens / self.num_words if self.num_words else math.nan

    @property
    def unknown_rate(self) -> float:
        """The share of the words that are [UNK]."""
        return self.num_unknown / self.num_words if self.num_words else math.nan

    def figures(self) -> dict[str, float]:
        """Counts and rates by name."""
        rates = ("characters_per_token", "pieces_per_word", "unknown_rate")
        return {**asdict(self), **{name: getattr(self, name) for name in rates}}


def measure_fit(tokenizer: BertTokenizer, texts: Sequence[str]) -> Fit:
    """Tokenise texts and count."""
    ids, _ = tokenizer.encode_flat(texts, add_special_tokens=False)
    continues = np.array(
        [token.startswith(CONTINUATION) for token in tokenizer.vocabulary.tokens], np.bool_
    )
    # A text cannot spell "##": each # is a word.
    return Fit(
        num_characters=sum(map(len, texts)),
        num_words=int(np.count_nonzero(~continues[ids])),
        num_tokens=len(ids),
        num_unknown=int(np.count_nonzero(ids == tokenizer.unk_token_id)),
    )
