"""``tidybert embed``: frozen features, a file of vectors or JSON lines on standard output."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidybert.cli.flags import takes
from tidybert.cli.output import note, training_progress
from tidybert.errors import UsageError
from tidybert.files.read_options import ReadOptions

if TYPE_CHECKING:
    from tidybert.files.text_examples import TextExample
    from tidybert.inference.embedding import Embedder
    from tidybert.inference.vector_files import Written
    from tidybert.inference.vector_formats import Layout, VectorFormat

# Where stderr is no terminal and has no bar.
_SECONDS_BETWEEN_LINES: Final = 10.0


@takes(read=ReadOptions)
def embed(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Of which the encoder alone is used.")
    ],
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Texts; - reads standard input.")
    ] = "-",
    *,
    pooling: Annotated[
        str,
        typer.Option(
            "--pooling",
            help="mean or max of the tokens' vectors, [CLS] and [SEP] counted; cls, that of [CLS]; "
            "or token, all of them.",
        ),
    ] = "mean",
    layers: Annotated[
        str,
        typer.Option(
            "--layers",
            help="-1 is the last layer, 0 the embeddings' output; several as in -2,-1; lastN, the "
            "last N; or all.",
        ),
    ] = "-1",
    combine: Annotated[
        str,
        typer.Option("--combine", help="How several layers make one vector: concat, sum or mean."),
    ] = "concat",
    normalize: Annotated[
        bool, typer.Option("--normalize", help="Bring each vector to length 1.")
    ] = False,
    dtype: Annotated[
        str, typer.Option("--dtype", help="Of the numbers written: float32 or float16.")
    ] = "float32",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Ends in .npy, .parquet or .jsonl; JSON lines on standard output if not set.",
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where a stopped run of the same --out was.")
    ] = False,
    max_seq_length: Annotated[
        int | None,
        typer.Option(
            "--max-seq-length",
            help="Tokens a text is cut to; all that the model has positions for if not set.",
        ),
    ] = None,
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Leave bad rows out and say which.")
    ] = False,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")] = "auto",
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Read weights from a pickle of MODEL.")
    ] = False,
    read: ReadOptions,
) -> None:
    """Turn each text into a vector, or each token, by an encoder as it is.

    The paper's best features for tagging are those of --pooling token --layers last4.
    """
    from tidybert.files.text_files import ReadReport, read_examples
    from tidybert.inference.arrivals import as_it_comes
    from tidybert.inference.embedding import POOLINGS, Embedder
    from tidybert.inference.part_file import check_target
    from tidybert.inference.vector_formats import DTYPES, Layout, format_of

    for flag, given, known in (
        ("--pooling", pooling, (*POOLINGS, "token")),
        ("--dtype", dtype, DTYPES),
    ):
        if given not in known:
            raise UsageError(f"{flag} {given!r}: expected one of {', '.join(known)}")
    if out is not None:
        check_target(out, resume)
    elif resume:
        raise UsageError("--resume goes with --out: standard output keeps nothing to go on with")
    embedder = Embedder(
        model,
        pooling="mean" if pooling == "token" else pooling,
        layers=layers,
        combine=combine,
        normalize=normalize,
        max_seq_length=max_seq_length,
        device=device,
        allow_pickle=allow_pickle,
    )
    layout = Layout(embedder.dimension, pooling == "token", dtype)

    def examples(report: ReadReport) -> "Iterator[TextExample]":
        return read_examples(
            file, read, need_label=False, skip_bad_rows=skip_bad_rows, report=report
        )

    report = ReadReport()
    if out is None:
        with as_it_comes(examples(report), file) as coming:
            num_texts, num_truncated = _print(embedder, coming, layout)
    else:
        kind = format_of(out, layout)
        total = None
        if Path(file).is_file():
            # Bad rows are found before the work, and the time that is left can be told.
            total = sum(1 for _ in examples(report))
        texts = examples(report if total is None else ReadReport())
        written = _write(embedder, texts, out, kind, resume=resume, total=total)
        num_texts, num_truncated = written.num_texts, written.num_truncated
        note(f"{out}: {num_texts:,} texts, {layout.dimension} numbers a vector")
    for line in report.lines():
        note(line)
    if num_truncated:
        note(
            f"{num_truncated:,} of {num_texts:,} texts were cut to {embedder.max_seq_length} tokens"
        )


def _print(
    embedder: "Embedder", examples: "Iterator[TextExample]", layout: "Layout"
) -> tuple[int, int]:
    """Print JSON lines; the numbers of texts and of those that were cut."""
    from tidybert.inference.vector_files import chunk_size, embedded_chunks
    from tidybert.inference.vector_formats import JsonLines

    lines, largest = JsonLines(layout), chunk_size(embedder, layout)
    num_texts = num_truncated = 0
    for chunk in embedded_chunks(embedder, examples, layout, first=1, largest=largest):
        sys.stdout.buffer.write(lines.encode(chunk))
        sys.stdout.flush()
        num_texts += len(chunk.examples)
        num_truncated += sum(chunk.truncated)
    return num_texts, num_truncated


def _write(
    embedder: "Embedder",
    examples: "Iterator[TextExample]",
    out: Path,
    kind: "VectorFormat",
    *,
    resume: bool,
    total: int | None,
) -> "Written":
    from tidybert.inference.part_file import has_part
    from tidybert.inference.vector_files import write_vectors

    if resume and not has_part(out):
        note(f"no part of {out} to resume from: starting at the first text")
    try:
        with _shown(total) as advance:
            return write_vectors(embedder, examples, out, kind, resume=resume, advance=advance)
    except BaseException:
        if has_part(out):
            note(f"what was done of {out} is kept; the same command with --resume goes on")
        raise


@contextmanager
def _shown(total: int | None) -> Iterator[Callable[[int], None]]:
    """Show on stderr how many texts are done, how fast, and the time that is left."""
    with training_progress() as progress:
        bar = progress.add_task("embedding", total=total)
        begin = last = time.monotonic()
        before: int | None = None

        def advance(done: int) -> None:
            nonlocal last, before
            progress.update(bar, completed=done)
            now = time.monotonic()
            if before is None:
                # What a stopped run had done says nothing of this one's speed.
                before = done
            elif progress.disable and now - last >= _SECONDS_BETWEEN_LINES:
                last = now
                note(_progress_line(done, total, (done - before) / (now - begin)))

        yield advance


def _progress_line(done: int, total: int | None, rate: float) -> str:
    if total is None:
        return f"{done:,} texts, {rate:.1f}/s"
    left = round((total - done) / rate)
    return f"{done:,} of {total:,} texts, {rate:.1f}/s, {left // 60}:{left % 60:02} left"
