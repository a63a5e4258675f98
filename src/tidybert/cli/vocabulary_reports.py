"""Counting a corpus's words and showing figures, for ``train-vocab`` and ``extend-vocab``."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidybert.cli.output import note, print_table
from tidybert.corpus.documents import CorpusOptions, CorpusReport, read_documents
from tidybert.errors import UsageError
from tidybert.files.wording import count_of

if TYPE_CHECKING:
    from tidybert.corpus.held_out_documents import HeldOut
    from tidybert.tokenization import BertTokenizer
    from tidybert.tokenization.basic import BasicTokenizer
    from tidybert.tokenization.learning.quality import Fit
    from tidybert.tokenization.learning.word_counts import WordCounts

# A vocabulary's name, its size, and how it fits the held-out text.
Measured = tuple[str, int, "Fit"]


def count_words(
    corpus: Sequence[str], read: CorpusOptions, basic: "BasicTokenizer", held_out: "HeldOut"
) -> "tuple[WordCounts, CorpusReport]":
    """Count the words of the documents that are not held out, and show the reading's progress."""
    from tidybert.cli.reading_progress import shown_reading
    from tidybert.tokenization.learning.word_counts import WordCounts

    report = CorpusReport()
    counts = WordCounts(basic)
    documents = read_documents(corpus, read, report=report)
    with shown_reading(report) as shown:
        for document in held_out.rest(shown(documents)):
            counts.add(document)
    counts.finish()
    note(*report.lines(str))
    if counts.num_forgotten:
        note(
            f"{counts.num_forgotten:,} of {counts.num_words:,} words are not counted, to bound the "
            f"memory: rare ones, none more than {counts.max_missed:,} times"
        )
    if held_out.is_apart:
        size = sum(len(line) for document in held_out.documents for line in document)
        kept = count_of(len(held_out.documents), "document")
        note(f"measured on {kept} held out, {size:,} characters")
    else:
        note("the corpus has one document: measured on the text that was learned from")
    return counts, report


def check_new(out: Path) -> None:
    """Raise UsageError where there is something at ``out``."""
    if out.exists():
        raise UsageError(f"--out {out} is there already; name a new directory")


def measured(name: str, tokenizer: "BertTokenizer", held_out: "HeldOut") -> Measured:
    """How a vocabulary fits the held-out documents."""
    from tidybert.tokenization.learning.quality import measure_fit

    texts = [line for document in held_out.documents for line in document]
    return name, tokenizer.vocab_size, measure_fit(tokenizer, texts)


def corpus_figures(report: CorpusReport, held_out: "HeldOut") -> dict[str, int]:
    """The documents that were read and held out, for --json."""
    return {
        "documents": report.num_documents,
        "held_out_documents": len(held_out.documents) if held_out.is_apart else 0,
    }


def described(measured: Measured) -> dict[str, Any]:
    """A vocabulary's figures for --json."""
    name, size, fit = measured
    return {"vocabulary": name, "size": size, **fit.figures()}


def print_fits(rows: Sequence[Measured]) -> None:
    """Print a line for each vocabulary, named by the last part of its path."""
    columns = ("size", "characters a token", "pieces a word", "unknown words")
    print_table(
        {"vocabulary": "left", **dict.fromkeys(columns, "right")},
        [
            (
                Path(name).name,
                f"{size:,}",
                f"{fit.characters_per_token:.3f}",
                f"{fit.pieces_per_word:.3f}",
                f"{fit.unknown_rate:.4%}",
            )
            for name, size, fit in rows
        ],
    )
