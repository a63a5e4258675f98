"""``tidybert index``: vectors of texts, and the texts beside them, to search in."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from tidybert.cli import flags
from tidybert.cli.flags import takes
from tidybert.cli.output import note
from tidybert.cli.text_job import run_on_cluster, run_text_job
from tidybert.errors import UsageError
from tidybert.files.reading import ReadOptions

if TYPE_CHECKING:
    pass

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
    from tidybert.files.text_files import read_examples
    from tidybert.search.index_files import IndexJob
    from tidybert.search.nearest_vectors import DTYPES

    for flag, value, known in (
        ("pooling", given.pooling, POOLINGS),
        ("dtype", given.dtype, DTYPES),
    ):
        if value is not None and value not in known:
            raise UsageError(f"--{flag} {value!r}: expected one of {', '.join(known)}")
    form = read_sentence_form(ModelDirectory.open(model, allow_pickle=given.allow_pickle))
    job = IndexJob(
        model=model,
        options={
            "pooling": given.pooling,
            "normalize": True,
            "max_seq_length": given.max_seq_length,
            "prompt_name": form.document_prompt_name,
            "device": given.device,
            "precision": given.precision,
            "allow_pickle": given.allow_pickle,
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
