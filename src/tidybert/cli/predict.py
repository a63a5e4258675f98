"""``tidybert predict``: one JSON line an example, streaming."""

import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TextIO

import typer

from tidybert.cli.flags import takes
from tidybert.cli.output import note
from tidybert.errors import UsageError
from tidybert.files.read_options import ReadOptions


@takes(read=ReadOptions)
def predict(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A finished RUN.")],
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Texts; - reads standard input.")
    ] = "-",
    *,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Instead of standard output.")
    ] = None,
    max_seq_length: Annotated[
        int | None,
        typer.Option("--max-seq-length", help="Tokens a text is cut to; as trained if not set."),
    ] = None,
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Leave bad rows out and say which.")
    ] = False,
    official_format: Annotated[
        bool,
        typer.Option(
            "--official-format", help="answer: one object from ids to answers, as SQuAD's has it."
        ),
    ] = False,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")] = "auto",
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Read weights from a pickle of RUN.")
    ] = False,
    read: ReadOptions,
) -> None:
    """Answer each text with one JSON line, in the order given, in constant memory.

    A line holds what the task answers (a label, a value, a choice, an answer, entities), its
    scores, num_tokens and truncated.
    """
    from tidybert.files.text_examples import ReadReport
    from tidybert.inference.arrivals import as_it_comes
    from tidybert.inference.predictor import Predictor

    if out is not None:
        if out.exists():
            raise UsageError(f"--out {out} is there already; name a new file")
        if not (out.parent.is_dir() and os.access(out.parent, os.W_OK)):
            raise UsageError(
                f"--out {out} cannot be written: {out.parent} is no folder to write to; make it "
                "first, or name another"
            )
    predictor = Predictor(
        run, device=device, max_seq_length=max_seq_length, allow_pickle=allow_pickle
    )
    if official_format and predictor.task.name != "answer":
        raise UsageError(
            f"--official-format is for answers to questions, and {run} was trained to "
            f"{predictor.task.name}"
        )
    report = ReadReport()
    examples = predictor.task.read(
        file, read, need_label=False, skip_bad_rows=skip_bad_rows, report=report
    )
    answered = truncated = 0
    with _output(out) as stream, as_it_comes(examples, file) as coming:
        for answer in predictor.predict_stream(coming):
            if official_format:
                # One object, written as it grows: memory stays constant.
                item = f"{json.dumps(answer['id'])}: {json.dumps(answer['answer'])}"
                stream.write(("{" if answered == 0 else ", ") + item)
            else:
                stream.write(json.dumps(answer, ensure_ascii=False) + "\n")
            if answered == 0 or file == "-":
                stream.flush()
            answered += 1
            truncated += answer["truncated"]
        if official_format:
            stream.write("}\n")
    for line in report.lines():
        note(line)
    if truncated:
        note(f"{truncated:,} of {answered:,} examples {predictor.task.truncation}")


@contextmanager
def _output(path: Path | None) -> Iterator[TextIO]:
    """Standard output in UTF-8, or a file that appears under its name once it is whole."""
    if path is None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")
        yield sys.stdout
        return
    from tidybert.atomic_files import atomic_file

    with atomic_file(path) as partial, partial.open("w", encoding="utf-8") as stream:
        yield stream
