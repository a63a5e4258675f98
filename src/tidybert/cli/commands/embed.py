"""``tidybert embed``: frozen features, into a file or as JSON lines on stdout."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from tidybert.cli import flags
from tidybert.cli.flags import takes
from tidybert.cli.text_job import run_text_job
from tidybert.files.reading import ReadOptions
from tidybert.inference.options import EmbedderOptions, PassageOptions
from tidybert.options import option, values_of

if TYPE_CHECKING:
    from tidybert.files.text_examples import TextExample
    from tidybert.inference.answer_files import Layout
    from tidybert.inference.embedding import Embedder

MOST_USED: Final = (
    "pooling", "layers", "combine", "normalize", "dtype", "out", "resume", "max_seq_length", "text",
    "device",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class EmbedFlags(PassageOptions, EmbedderOptions, flags.AnswerFlags, flags.OutFlags):
    pooling: Literal["mean", "cls", "max", "token"] | None = option(None)  # type: ignore[assignment]
    """Take the mean or max of a text's tokens, cls for [CLS], or token for all. If not set: as
    MODEL says, else mean."""
    dtype: Literal["float32", "float16"] = option("float32")
    """Write the numbers as float32 or float16."""
    out: Path | None = None
    """``--out FILE``: New file ending in .npy, .parquet or .jsonl. If not set: JSON lines on
    stdout."""


@takes(*MOST_USED, given=EmbedFlags, read=ReadOptions)
def embed(
    model: flags.ModelArgument,
    file: flags.TextsArgument = "-",
    *,
    given: EmbedFlags,
    read: ReadOptions,
) -> None:
    """Turn each text, or each token, into a vector by MODEL's encoder, without training it.

    The paper's best features for tagging are --pooling token --layers last4.
    """
    from tidybert.files.text_files import read_examples
    from tidybert.inference.forward import as_it_comes
    from tidybert.inference.text_jobs import EmbedJob

    per_token = given.pooling == "token"
    job = EmbedJob(
        model=model,
        options={
            **values_of(given, EmbedderOptions),
            **({"pooling": None} if per_token else {}),
        },
        read=read,
        skip_bad_rows=given.skip_bad_rows,
        per_token=per_token,
        dtype=given.dtype,
        **values_of(given, PassageOptions),
    )
    if given.cluster is None:
        read_examples.formats.check(file, read.format)

    def show(embedder: "Embedder", examples: "Iterator[TextExample]") -> tuple[int, int]:
        with as_it_comes(examples, file) as coming:
            return _print(embedder, coming, job.layout(embedder))

    done = run_text_job(
        job,
        file,
        given,
        "embedding",
        show=show,
    )
    if done is not None:
        done.note(given.out, f"; {job.layout(done.opened).dimension} numbers a vector")


def _print(
    embedder: "Embedder", examples: "Iterator[TextExample]", layout: "Layout"
) -> tuple[int, int]:
    """Print JSON lines; returns the numbers of texts and of those that were cut."""
    from tidybert.inference.answer_files import JsonLines, chunk_size, embedded_chunks

    lines, largest = JsonLines(layout), chunk_size(embedder, layout)
    num_texts = num_truncated = 0
    for chunk in embedded_chunks(embedder, examples, layout, first=1, largest=largest):
        sys.stdout.buffer.write(lines.encode(chunk))
        sys.stdout.flush()
        num_texts += len(chunk.examples)
        num_truncated += sum(chunk.truncated)
    return num_texts, num_truncated
