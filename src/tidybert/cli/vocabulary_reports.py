"""What ``train-vocab`` and ``extend-vocab`` share: counting a corpus's words, and the figures."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidybert.cli.output import note, print_table
from tidybert.corpus.documents import CorpusOptions, CorpusReport, read_documents
from tidybert.files.text_examples import count_of

if TYPE_CHECKING:
    from tidybert.corpus.held_out_documents import HeldOut
    from tidybert.tokenization.basic import BasicTokenizer
    from tidybert.tokenization.learning.quality import Fit
    from tidybert.tokenization.learning.word_counts import WordCounts

CorpusArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="CORPUS...",
        help="Files, folders or globs: text with a blank line between documents, JSON lines, "
        "Parquet; plain, .gz, .xz or .zst.",
    ),
]
HeldOutOption = Annotated[
    float,
    typer.Option("--held-out", help="Share of the documents kept apart to measure on."),
]

# A vocabulary's name, its size, and how it fits the held-out text.
Measured = tuple[str, int, "Fit"]


def count_words(
    corpus: Sequence[str], read: CorpusOptions, basic: "BasicTokenizer", held_out: "HeldOut"
) -> "tuple[WordCounts, CorpusReport]":
    """Count the words of the documents that are not held out, showing how far the reading is."""
    from tidybert.cli.reading_progress import shown_reading
    from tidybert.tokenization.learning.word_counts import WordCounts

    report = CorpusReport()
    counts = WordCounts(basic)
    documents = read_documents(
        corpus,
        column=read.column,
        encoding=read.encoding,
        skip_bad_rows=read.skip_bad_rows,
        report=report,
    )
    with shown_reading(report) as shown:
        for document in held_out.rest(shown(documents)):
            counts.add(document)
    counts.finish()
    for line in report.lines():
        note(line)
    if counts.num_forgotten:
        note(
            f"{counts.num_forgotten:,} of {counts.num_words:,} words, rare ones, were forgotten to "
            f"bound the memory; none more than {counts.max_missed:,} times"
        )
    if held_out.is_apart:
        size = sum(len(line) for document in held_out.documents for line in document)
        kept = count_of(len(held_out.documents), "document")
        note(f"measured on {kept} held out, {size:,} characters")
    else:
        note("the corpus has one document: measured on the text that was learnt from")
    return counts, report


def described(measured: Measured) -> dict[str, Any]:
    """A vocabulary's figures for --json."""
    name, size, fit = measured
    return {"vocabulary": name, "size": size, **fit.figures()}


def print_fits(rows: Sequence[Measured]) -> None:
    """Print a line for each vocabulary, under the last part of its path."""
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
