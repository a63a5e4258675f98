"""``tidybert embed``: frozen features, into a file or as JSON lines on stdout."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidybert.cli import flags
from tidybert.cli.flags import takes
from tidybert.cli.text_job import run_text_job
from tidybert.errors import UsageError
from tidybert.files.reading import ReadOptions
from tidybert.options import option

if TYPE_CHECKING:
    from tidybert.files.text_examples import TextExample
    from tidybert.inference.answer_files import Layout
    from tidybert.inference.embedding import Embedder

MOST_USED: Final = (
    "pooling", "layers", "combine", "normalize", "dtype", "out", "resume", "max_seq_length", "text",
    "device",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class EmbedFlags(flags.AnswerFlags, flags.ClusterFlags):
    pooling: str | None = None
    """Take the mean or max of a text's tokens, cls for [CLS], or token for all. If not set: as
    MODEL says, else mean."""
    layers: str = "-1"
    """Layers to take: -1 is the last, 0 the embeddings, -2,-1 a list, last4 the last four, and all
    every layer."""
    combine: str = "concat"
    """Make one vector of several layers by concat, sum or mean."""
    normalize: bool | None = None
    """``--normalize/--no-normalize``: Scale each vector to length 1, or leave it. If not set: as
    MODEL says, else leave it."""
    prompt: str | None = option(None, panel="Data")
    """Put this before each text. If not set: as --prompt-name says."""
    prompt_name: str | None = option(None, panel="Data")
    """``--prompt-name NAME``: Put MODEL's prompt of this name before each text. If not set: MODEL's
    default prompt, if it has one."""
    truncate_dim: int | None = option(None, panel="Data")
    """``--truncate-dim D``: Keep the first D numbers of each vector, of a Matryoshka model. If not
    set: as MODEL says, else all."""
    max_seq_length: int | None = None
    """Most tokens of a text; a longer one is cut. If not set: as MODEL's sentence_bert_config.json
    says, else as many as the model allows."""
    dtype: str = "float32"
    """Write the numbers as float32 or float16."""
    out: Path | None = None
    """``--out FILE``: New file ending in .npy, .parquet or .jsonl. If not set: JSON lines on
    stdout."""
    resume: bool = False
    """``--resume``: Continue a stopped run of the same --out."""


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

    _check(given)
    per_token = given.pooling == "token"
    job = EmbedJob(
        model=model,
        options={
            "pooling": None if per_token else given.pooling,
            **{
                name: getattr(given, name)
                for name in (
                    *("layers", "combine", "normalize", "max_seq_length", "prompt", "prompt_name"),
                    *("truncate_dim", "device", "precision", "allow_pickle"),
                )
            },
        },
        read=read,
        skip_bad_rows=given.skip_bad_rows,
        per_token=per_token,
        dtype=given.dtype,
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


def _check(given: EmbedFlags) -> None:
    from tidybert.checkpoints.sentence_form import POOLINGS
    from tidybert.inference.answer_files import DTYPES

    for flag, value, known in (
        ("--pooling", given.pooling, (*POOLINGS, "token")),
        ("--dtype", given.dtype, DTYPES),
    ):
        if value is not None and value not in known:
            raise UsageError(f"{flag} {value!r}: expected one of {', '.join(known)}")


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
