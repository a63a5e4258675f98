"""Learn a WordPiece vocabulary from counts of words, with the trainer of the tokenizers library.

That trainer starts from single characters and joins the pair of pieces that is most frequent, over
and over (Sennrich et al., 2016, section 3.2; Google never published its own).  Which of two equally
frequent pairs comes first depends on the numbers of its pieces, and it numbers the characters
inside words in the order of a hash table; they are given to it in order here, so that the same
counts always give the same vocabulary.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tidybert.errors import DataError, UsageError, param
from tidybert.tokenization.learning.word_counts import WordCounts
from tidybert.tokenization.vocabulary import (
    CLS_TOKEN,
    CONTINUATION,
    MASK_TOKEN,
    PAD_TOKEN,
    SEP_TOKEN,
    UNK_TOKEN,
    Vocabulary,
)

#: The published vocabularies begin with these, so that the special tokens have their ids.
FIRST_TOKENS: Final = (
    PAD_TOKEN,
    *(f"[unused{number}]" for number in range(99)),
    UNK_TOKEN,
    CLS_TOKEN,
    SEP_TOKEN,
    MASK_TOKEN,
)
#: Below it the first tokens and the characters leave no room for words.
MIN_SIZE: Final = 1000
DEFAULT_COVERAGE: Final = 0.99999
#: The trainer takes 0.8 KB of memory for each English word.
MAX_TRAINED_WORDS: Final = 2**19
#: The trainer gets a word as often as it occurs, and takes a second for 2 to 7 million.
MAX_TOLD: Final = 2**27
# A piece seen once says nothing about other texts.
MIN_FREQUENCY: Final = 2
_REPEATED: Final = 1000


@dataclass(frozen=True)
class LearntVocabulary:
    """A vocabulary, and what of the text it was not learnt from.

    num_characters: different characters of the text.
    dropped_characters: those without a piece, the most frequent first; their words are [UNK].
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
    """Learn at most ``size`` tokens; fewer where no further pair of pieces occurs twice.

    Every character of the text gets a piece, but for the rarest that together make up less than
    1 - ``character_coverage`` of it; the pieces of characters take at most half of the room.
    Raises UsageError for a size or a coverage out of range, DataError for counts without a word.
    """
    check_training(size, character_coverage)
    counts.finish()
    first, inner = counts.characters()
    in_all = first + inner
    if not in_all:
        raise DataError("the text has no words to learn a vocabulary from")
    room = size - len(FIRST_TOKENS)
    ranked = sorted(in_all, key=lambda character: (-in_all[character], character))
    kept = _kept_characters(ranked, in_all, inner, character_coverage, room // 2)
    alphabet = sorted(kept)
    continuations = [CONTINUATION + character for character in alphabet if character in inner]
    told = _told_words(counts.words, kept)
    merged = _merge(told, alphabet, continuations, room)
    dropped = tuple(character for character in ranked if character not in kept)
    return LearntVocabulary(
        Vocabulary([*FIRST_TOKENS, *alphabet, *continuations, *merged]),
        num_characters=len(in_all),
        dropped_characters=dropped,
        num_dropped=sum(in_all[character] for character in dropped),
        num_left_out=counts.num_words - sum(counts.words[word] for word in told),
    )


def check_training(size: int, character_coverage: float) -> None:
    """Raise UsageError for a size without room for words, or a coverage that is not a share."""
    if size < MIN_SIZE:
        raise UsageError(
            f"{param('size', size)}: expected at least {MIN_SIZE:,}: the first {len(FIRST_TOKENS)} "
            "places are those of the special tokens in the published vocabularies, and each "
            "character takes one or two more"
        )
    if not 0 < character_coverage <= 1:
        raise UsageError(
            f"{param('character_coverage')} {character_coverage:g}: expected a share above 0, at "
            "most 1"
        )


def _kept_characters(
    ranked: list[str],
    in_all: Counter[str],
    inner: Counter[str],
    coverage: float,
    max_pieces: int,
) -> set[str]:
    """The most frequent characters up to the coverage, or to ``max_pieces``."""
    kept: set[str] = set()
    uncovered = in_all.total()
    allowed = (1 - coverage) * uncovered
    for character in ranked:
        max_pieces -= 2 if character in inner else 1
        if max_pieces < 0 or uncovered <= allowed:
            break
        kept.add(character)
        uncovered -= in_all[character]
    return kept


def _told_words(words: dict[str, int], kept: set[str]) -> dict[str, int]:
    """The words to learn from and how often to give each, so that time and memory are bounded."""
    known = [item for item in words.items() if kept.issuperset(item[0])]
    known.sort(key=lambda item: (-item[1], item[0]))
    known = known[:MAX_TRAINED_WORDS]
    divisor = max(1.0, sum(count for _, count in known) / MAX_TOLD)
    return {word: times for word, count in known if (times := round(count / divisor))}


def _merge(
    told: dict[str, int], alphabet: list[str], continuations: list[str], room: int
) -> list[str]:
    """The pieces that joining gives, in the order in which they were joined."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token=UNK_TOKEN))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordPieceTrainer(
        vocab_size=room,
        min_frequency=MIN_FREQUENCY,
        show_progress=False,
        # Its own limit chooses among equally rare characters by chance.
        limit_alphabet=len(alphabet),
        initial_alphabet=alphabet,
        # No special tokens, but the only ones that get their numbers beforehand, in this order.
        special_tokens=continuations,
        continuing_subword_prefix=CONTINUATION,
    )
    tokenizer.train_from_iterator(_repeated(told), trainer)
    ids = tokenizer.get_vocab()
    single = {*alphabet, *continuations}
    return [piece for piece in sorted(ids, key=ids.__getitem__) if piece not in single]


def _repeated(told: dict[str, int]) -> Iterator[str]:
    """Lines that hold each word as often as the trainer gets it."""
    for word, times in told.items():
        spaced = f"{word} "
        for _ in range(times // _REPEATED):
            yield spaced * _REPEATED
        yield spaced * (times % _REPEATED)
