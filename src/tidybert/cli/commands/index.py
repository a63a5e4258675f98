"""``tidybert index``: vectors of texts, and the texts beside them, to search in."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal

import typer

from tidybert.cli import flags
from tidybert.cli.flags import takes
from tidybert.cli.output import note
from tidybert.cli.text_job import run_on_cluster, run_text_job
from tidybert.errors import UsageError
from tidybert.files.reading import ReadOptions
from tidybert.files.rows import count_of
from tidybert.inference.options import OpeningOptions, PassageOptions, SentenceOptions
from tidybert.options import option, values_of

MOST_USED: Final = (
    "out", "text", "id", "replace", "delete", "passages", "dtype", "pooling", "max_seq_length",
    "format", "device",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class IndexFlags(PassageOptions, SentenceOptions, flags.AnswerFlags, flags.ClusterFlags):
    PANEL: ClassVar = "Other options"

    out: Path
    """``--out DIR``: Directory of the index, new or begun with the same texts."""
    dtype: Literal["float32", "float16", "int8"] = option("float32")
    """Store the numbers as float32, float16 (half the size) or int8 (a quarter)."""
    id: str | None = None
    """``--id COLUMN``: Column of the texts' ids. If not set: the place of a text in FILE, from
    0, is its id."""
    replace: bool = False
    """``--replace``: Put a text of FILE in the place of the one with its id, if they differ, and
    add new ones; others stay."""
    delete: str | None = None
    """``--delete IDS``: Delete the texts with these ids, which commas separate; @FILE has an id
    a line. Takes no MODEL."""
    compact: bool = False
    """``--compact``: Give back the space of deleted and replaced texts. Takes no MODEL."""


@takes(*MOST_USED, given=IndexFlags, read=ReadOptions)
def index(
    model: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help="A name that tidybert models lists, or a directory."),
    ] = None,
    file: flags.TextsArgument = "-",
    *,
    given: IndexFlags,
    read: ReadOptions,
) -> None:
    """Turn each text into a vector by MODEL's encoder, for tidybert search.

    The other columns of FILE are kept beside the texts. The same command continues a stopped
    one, and with more texts at the end of FILE it adds those; nothing is computed twice.
    """
    if given.delete is not None or given.compact:
        if model is not None or given.replace:
            raise UsageError("--delete and --compact take no MODEL, FILE or --replace")
        _change(given)
        return
    if model is None:
        raise UsageError("Missing argument 'MODEL'.")
    if given.replace and given.cluster is not None:
        raise UsageError("--replace works on one machine: leave --cluster out")
    from tidybert.checkpoints.model_directory import ModelDirectory
    from tidybert.checkpoints.sentence_reading import read_sentence_form
    from tidybert.files.text_files import read_examples
    from tidybert.search.index_files import IndexJob

    form = read_sentence_form(ModelDirectory.open(model, allow_pickle=given.allow_pickle))
    job = IndexJob(
        model=model,
        options={
            **values_of(given, SentenceOptions, OpeningOptions),
            "normalize": True,
            "prompt_name": form.document_prompt_name,
        },
        read=read,
        skip_bad_rows=given.skip_bad_rows,
        stored=given.dtype,
        **values_of(given, PassageOptions),
        id=given.id,
        replacing=given.replace,
    )
    if given.cluster is not None:
        from tidybert.cluster.index_job import index_files

        run_on_cluster(partial(index_files, job), file, given.out, given, "indexing")
        note(f"next: tidybert search {given.out}")
        return
    read_examples.formats.check(file, read.format)
    done = run_text_job(
        job,
        file,
        given,
        "indexing",
    )
    assert done is not None
    written = done.written
    if written.num_resumed == written.num_texts:
        note(f"{given.out} has these {written.num_texts:,} texts already: nothing to do")
        return
    more = f"; {done.opened.dimension} numbers a vector"
    if written.num_resumed:
        more += f"; {written.num_resumed:,} were there before"
    done.note(given.out, more)
    note(f"next: tidybert search {given.out}")


def _change(given: IndexFlags) -> None:
    """Delete texts, compact the index, or both."""
    from tidybert.files.text_lines import decoded_lines, open_bytes
    from tidybert.search.index_files import compact_index, delete_texts

    if given.delete is not None:
        ids = [each.strip() for each in given.delete.split(",")]
        if given.delete.startswith("@"):
            path = given.delete[1:]
            with open_bytes(path) as stream:
                ids = [line.strip() for _, line, _ in decoded_lines(stream, "utf-8", path)]
        deleted = delete_texts(given.out, [each for each in ids if each])
        note(f"{given.out}: {count_of(deleted, 'text')} deleted")
    if given.compact:
        note(f"{given.out}: the space of {count_of(compact_index(given.out), 'text')} given back")
