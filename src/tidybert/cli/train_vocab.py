"""``tidybert train-vocab``: a WordPiece vocabulary from a corpus, measured on held-out text."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidybert.cli import shared_flags as flags
from tidybert.cli.flags import takes
from tidybert.cli.output import note, print_json
from tidybert.cli.vocabulary_reports import (
    check_new,
    corpus_figures,
    count_words,
    described,
    measured,
    print_fits,
)
from tidybert.corpus.documents import CorpusOptions
from tidybert.files.wording import count_of

if TYPE_CHECKING:
    from tidybert.tokenization.learning.vocabulary_training import LearntVocabulary
    from tidybert.tokenization.learning.word_counts import WordCounts


@dataclass(frozen=True, kw_only=True)
class TrainVocabFlags(flags.NewDirectoryFlag, flags.HeldOutFlag, flags.JsonFlag):
    size: int = 30522
    """Tokens of the vocabulary, special tokens included."""
    cased: bool = False
    """``--cased/--uncased``: Keep capitals, or lowercase the text."""
    strip_accents: bool | None = None
    """``--strip-accents/--keep-accents``: Turn é into e, or keep it. If not set: as --cased or
    --uncased implies."""
    character_coverage: float = 0.99999
    """Share of the text whose characters get a piece; the rarest get none."""
    compare: str | None = None
    """``--compare MODEL``: Also measure this model's vocabulary."""


@takes(given=TrainVocabFlags, read=CorpusOptions)
def train_vocab(
    corpus: flags.CorpusArgument,
    *,
    given: TrainVocabFlags,
    read: CorpusOptions,
) -> None:
    """Learn a WordPiece vocabulary from a corpus of any size and write a tokenizer directory.

    Give DIR wherever --vocab takes a MODEL; transformers opens it too. The same corpus gives the
    same vocabulary.
    """
    from tidybert.atomic_files import atomic_directory
    from tidybert.corpus.held_out_documents import HeldOut
    from tidybert.tokenization import BasicTokenizer, BertTokenizer
    from tidybert.tokenization.learning.vocabulary_training import check_training, train_vocabulary

    check_new(given.out)
    check_training(given.size, given.character_coverage)
    held = HeldOut(given.held_out)
    other = None if given.compare is None else BertTokenizer.from_pretrained(given.compare)
    case, accents = not given.cased, given.strip_accents
    counts, report = count_words(corpus, read, BasicTokenizer(case, accents), held)
    note(f"learning from {len(counts.words):,} different words, {counts.num_words:,} in all")
    learnt = train_vocabulary(counts, given.size, character_coverage=given.character_coverage)
    tokenizer = BertTokenizer(learnt.vocabulary, case, strip_accents=accents)
    with atomic_directory(given.out) as directory:
        tokenizer.save(directory)
    note(*_notes(learnt, counts, given.size))

    fit = measured(str(given.out), tokenizer, held)
    compared = None if other is None else measured(str(given.compare), other, held)
    if not given.json:
        print_fits([fit] if compared is None else [fit, compared])
        return
    print_json(
        {
            **described(fit),
            **corpus_figures(report, held),
            "words": counts.num_words,
            "different_words": len(counts.words),
            "words_left_out": learnt.num_left_out,
            "different_characters": learnt.num_characters,
            "characters_without_piece": len(learnt.dropped_characters),
            "compare": compared and described(compared),
        }
    )


def _notes(learnt: "LearntVocabulary", counts: "WordCounts", size: int) -> Iterator[str]:
    """What the vocabulary leaves out of the text."""
    from tidybert.tokenization.wordpiece import MAX_CHARS_PER_WORD

    if counts.num_too_long:
        yield (
            f"{count_of(counts.num_too_long, 'word')} of more than {MAX_CHARS_PER_WORD} characters "
            "will be [UNK]"
        )
    if dropped := learnt.dropped_characters:
        yield (
            f"{len(dropped):,} of {learnt.num_characters:,} different characters, the rarest, have "
            f"no piece ({' '.join(dropped[:10])}{' …' if len(dropped) > 10 else ''}); they occur "
            f"{learnt.num_dropped:,} times; a larger --character-coverage or --size keeps more"
        )
    found = len(learnt.vocabulary)
    if found < size:
        yield (
            f"{found:,} tokens, fewer than the {size:,} asked for: no other two pieces "
            "occur together twice"
        )
