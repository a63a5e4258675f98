"""``tidybert index``: vectors of texts, and the texts beside them, to search in."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Final, Literal

from tidybert.cli import flags
from tidybert.cli.flags import takes
from tidybert.cli.output import note
from tidybert.cli.text_job import run_on_cluster, run_text_job
from tidybert.files.reading import ReadOptions
from tidybert.inference.options import OpeningOptions, SentenceOptions
from tidybert.options import option, values_of

MOST_USED: Final = ("out", "text", "dtype", "pooling", "max_seq_length", "format", "device")


@dataclass(frozen=True, kw_only=True)
class IndexFlags(SentenceOptions, flags.AnswerFlags, flags.ClusterFlags):
    PANEL: ClassVar = "Other options"

    out: Path
    """``--out DIR``: Directory of the index, new or begun with the same texts."""
    dtype: Literal["float32", "float16", "int8"] = option("float32")
    """Store the numbers as float32, float16 (half the size) or int8 (a quarter)."""


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
    )
    if given.cluster is not None:
        from tidybert.cluster.file_job import index_files

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
