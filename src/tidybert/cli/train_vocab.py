"""``tidybert train-vocab``: a WordPiece vocabulary from a corpus, measured on held-out text."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidybert.cli.flags import takes
from tidybert.cli.output import note, print_json
from tidybert.cli.vocabulary_reports import (
    CorpusArgument,
    HeldOutOption,
    count_words,
    described,
    print_fits,
)
from tidybert.corpus.documents import CorpusOptions
from tidybert.errors import UsageError
from tidybert.files.text_examples import count_of

if TYPE_CHECKING:
    from tidybert.tokenization.learning.vocabulary_training import LearntVocabulary
    from tidybert.tokenization.learning.word_counts import WordCounts


@takes(read=CorpusOptions)
def train_vocab(
    corpus: CorpusArgument,
    *,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="New directory to write.")],
    size: Annotated[
        int, typer.Option("--size", help="Tokens of the vocabulary, special ones counted.")
    ] = 30522,
    cased: Annotated[
        bool, typer.Option("--cased/--uncased", help="Whether capitals stay capitals.")
    ] = False,
    strip_accents: Annotated[
        bool | None,
        typer.Option(
            "--strip-accents/--keep-accents",
            help="Whether é becomes e; if not set, it does where text is uncased.",
        ),
    ] = None,
    character_coverage: Annotated[
        float,
        typer.Option(
            "--character-coverage",
            help="Share of the text whose characters get a piece; the rarest go without.",
        ),
    ] = 0.99999,
    held_out: HeldOutOption = 0.005,
    compare: Annotated[
        str | None,
        typer.Option("--compare", metavar="MODEL", help="Measure its vocabulary too."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    read: CorpusOptions,
) -> None:
    """Learn a WordPiece vocabulary from a corpus of any size and write a tokenizer directory.

    DIR can be named wherever --vocab takes a MODEL, and transformers opens it. The same corpus
    gives the same vocabulary.
    """
    from tidybert.atomic_files import atomic_directory
    from tidybert.corpus.held_out_documents import HeldOut
    from tidybert.tokenization import BasicTokenizer, BertTokenizer
    from tidybert.tokenization.learning.quality import measure_fit
    from tidybert.tokenization.learning.vocabulary_training import check_training, train_vocabulary

    if out.exists():
        raise UsageError(f"--out {out} is there already; name a new directory")
    check_training(size, character_coverage)
    held = HeldOut(held_out)
    other = None if compare is None else BertTokenizer.from_pretrained(compare)
    counts, report = count_words(corpus, read, BasicTokenizer(not cased, strip_accents), held)
    note(f"learning from {len(counts.words):,} different words, {counts.num_words:,} in all")
    learnt = train_vocabulary(counts, size, character_coverage=character_coverage)
    tokenizer = BertTokenizer(learnt.vocabulary, not cased, strip_accents=strip_accents)
    with atomic_directory(out) as directory:
        tokenizer.save(directory)
    for line in _notes(learnt, counts, size):
        note(line)

    texts = [line for document in held.documents for line in document]
    rows = [(str(out), tokenizer.vocab_size, measure_fit(tokenizer, texts))]
    if compare is not None and other is not None:
        rows.append((compare, other.vocab_size, measure_fit(other, texts)))
    if not json:
        print_fits(rows)
        return
    print_json(
        {
            **described(rows[0]),
            "documents": report.num_documents,
            "held_out_documents": len(held.documents) if held.is_apart else 0,
            "words": counts.num_words,
            "different_words": len(counts.words),
            "words_left_out": learnt.num_left_out,
            "different_characters": learnt.num_characters,
            "characters_without_piece": len(learnt.dropped_characters),
            "compare": described(rows[1]) if other else None,
        }
    )


def _notes(learnt: "LearntVocabulary", counts: "WordCounts", size: int) -> Iterator[str]:
    """What of the text the vocabulary leaves out."""
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
            "stand together twice"
        )
