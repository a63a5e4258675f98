"""``tidybert index``: vectors of texts, and the texts beside them, to search in."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tidybert.cli import flags
from tidybert.cli.cluster_work import refuse_cluster_flags, run_on_cluster
from tidybert.cli.flags import takes
from tidybert.cli.output import note, note_reading, note_texts_done
from tidybert.cli.progress import shown_texts
from tidybert.errors import UsageError
from tidybert.files.reading import ReadOptions

if TYPE_CHECKING:
    from tidybert.files.text_examples import TextExample

MOST_USED: Final = ("out", "text", "dtype", "pooling", "max_seq_length", "format", "device")


@dataclass(frozen=True, kw_only=True)
class IndexFlags(flags.AnswerFlags, flags.ClusterFlags):
    PANEL: ClassVar = "Other options"

    out: Path
    """``--out DIR``: Directory of the index, new or begun with the same texts."""
    dtype: str = "float32"
    """Store the numbers as float32, float16 (half the size) or int8 (a quarter)."""
    pooling: str | None = None
    """Pool the token vectors of a text: mean, max or cls, which is [CLS]. If not set: as MODEL's
    modules.json says, else mean."""
    max_seq_length: int | None = None
    """Most tokens of a text; a longer one is cut. If not set: as MODEL's sentence_bert_config.json
    says, else as many as the model allows."""


@takes(*MOST_USED, given=IndexFlags, read=ReadOptions)
def index(
    model: flags.ModelArgument,
    file: flags.TextsArgument = "-",
    *,
    given: IndexFlags,
    read: ReadOptions,
) -> None:
    """Turn each text into a vector by MODEL's encoder, for tidybert search.

    The other columns of FILE are kept beside the texts. The same command continues a stopped
    one, and with more texts at the end of FILE it adds those; nothing is computed twice.
    """
    from tidybert.checkpoints.model_directory import ModelDirectory
    from tidybert.checkpoints.sentence_form import POOLINGS
    from tidybert.checkpoints.sentence_reading import read_sentence_form
    from tidybert.files.reading import ReadReport
    from tidybert.files.text_files import read_examples
    from tidybert.inference.embedding import Embedder
    from tidybert.modeling.kernels.nearest_vectors import DTYPES
    from tidybert.search.index_files import write_index
    from tidybert.storage.output_lock import output_lock

    for flag, value, known in (
        ("pooling", given.pooling, POOLINGS),
        ("dtype", given.dtype, DTYPES),
    ):
        if value is not None and value not in known:
            raise UsageError(f"--{flag} {value!r}: expected one of {', '.join(known)}")
    form = read_sentence_form(ModelDirectory.open(model, allow_pickle=given.allow_pickle))
    options: dict[str, Any] = {
        "pooling": given.pooling,
        "normalize": True,
        "max_seq_length": given.max_seq_length,
        "prompt_name": form.document_prompt_name,
        "device": given.device,
        "precision": given.precision,
        "allow_pickle": given.allow_pickle,
    }
    if given.cluster is not None:
        _index_on_cluster(model, file, given, read, options)
        return
    refuse_cluster_flags(given)
    reader = read_examples.with_details(keep_columns=True)
    reader.formats.check(file, read.format)

    def examples(report: ReadReport) -> "Iterator[TextExample]":
        return reader(
            file, read, need_label=False, skip_bad_rows=given.skip_bad_rows, report=report
        )

    # A second process is refused before it loads the model.
    with output_lock(given.out):
        embedder = Embedder(model, **options)
        report = ReadReport()
        begun = time.monotonic()
        # A first reading finds bad rows before the work, and counts the texts for the time left.
        total = sum(1 for _ in examples(report)) if Path(file).is_file() else None
        texts = examples(report if total is None else ReadReport())
        with shown_texts("indexing", total) as advance:
            written = write_index(
                embedder, texts, given.out, dtype=given.dtype, model=model, advance=advance
            )
    cut = f"texts were cut to {embedder.max_seq_length} tokens"
    note_reading(report, written.num_truncated, written.num_texts, cut)
    if written.num_resumed == written.num_texts:
        note(f"{given.out} has these {written.num_texts:,} texts already: nothing to do")
        return
    more = f"; {embedder.dimension} numbers a vector"
    if written.num_resumed:
        more += f"; {written.num_resumed:,} were there before"
    seconds = time.monotonic() - begun
    counts = written.num_texts, written.num_truncated
    note_texts_done(given.out, *counts, seconds, written.num_resumed, more)
    note(f"next: tidybert search {given.out}")


def _index_on_cluster(
    model: str, file: str, given: IndexFlags, read: ReadOptions, options: dict[str, Any]
) -> None:
    from tidybert.cluster.file_job import IndexWork, index_files

    work = IndexWork(model=model, options=options, read=read, skip_bad_rows=given.skip_bad_rows)
    do = partial(index_files, work, dtype=given.dtype)
    run_on_cluster(do, file, given.out, given, "indexing")
    note(f"next: tidybert search {given.out}")
