"""``tidybert duplicates``: texts of a file that say almost the same."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from tidybert.cli import flags
from tidybert.cli.flags import takes
from tidybert.cli.output import note, note_reading, print_part
from tidybert.cli.progress import shown_texts
from tidybert.errors import UsageError
from tidybert.files.reading import ReadOptions
from tidybert.options import option
from tidybert.system.terminal import clock

MOST_USED: Final = ("threshold", "model", "out", "text", "format", "device")


@dataclass(frozen=True, kw_only=True)
class DuplicatesFlags(flags.ExamplesFlags):
    PANEL: ClassVar = "Other options"

    model: str = "minilm"
    """``--model MODEL``: Model whose encoder reads the texts."""
    threshold: float = option(0.9, at_least=-1.0, at_most=1.0)
    """Cosine from which two texts are near-duplicates."""
    out: Path | None = None
    """``--out FILE``: CSV to write. If not set: stdout."""


@takes(*MOST_USED, given=DuplicatesFlags, read=ReadOptions)
def duplicates(
    file: flags.TextsArgument = "-", *, given: DuplicatesFlags, read: ReadOptions
) -> None:
    """Find groups of texts that say almost the same, by the cosine of their vectors.

    The CSV has a row for each text of a group: group, row, text, nearest (the row of the text that
    is most like it) and cosine. Texts that are alike to one text are in one group.
    """
    from tidybert.checking.near_duplicates import (
        COLUMNS,
        directions,
        duplicate_rows,
        group_alike,
    )
    from tidybert.data.corrections import csv_text
    from tidybert.data.features import example_features
    from tidybert.files.reading import ReadReport
    from tidybert.files.text_files import read_examples
    from tidybert.inference.embedding import Embedder
    from tidybert.storage.atomic_files import atomic_write_text

    report = ReadReport()
    examples = list(
        read_examples(
            file, read, need_label=False, skip_bad_rows=given.skip_bad_rows, report=report
        )
    )
    if any(one.text_pair is not None for one in examples):
        raise UsageError(f"{file} has pairs of texts: name the column to compare with --text")
    embedder = Embedder(given.model, device=given.device, allow_pickle=given.allow_pickle)
    begun = time.monotonic()
    features = example_features(examples, embedder.tokenizer, embedder.max_seq_length)
    with shown_texts("encoding", len(examples)) as reporter:
        vectors = embedder.vectors(features, reporter)
    with shown_texts("comparing", len(examples)) as reporter:
        found = group_alike(directions(vectors, vectors.mean(axis=0)), given.threshold, reporter)
    rows = duplicate_rows(examples, found)
    content = csv_text(rows, COLUMNS)
    if given.out is None:
        print_part(content)
    else:
        atomic_write_text(given.out, content)
    cut = f"texts were cut to {embedder.max_seq_length} tokens"
    note_reading(report, sum(one.truncated for one in features), len(examples), cut)
    groups = len({row["group"] for row in rows})
    note(
        f"{len(rows):,} of {len(examples):,} texts are in {groups:,} groups; "
        f"{clock(time.monotonic() - begun)}"
    )
