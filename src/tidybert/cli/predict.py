"""``tidybert predict``: one JSON line an example, streaming."""

import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from tidybert.cli import shared_flags as flags
from tidybert.cli.flags import takes
from tidybert.cli.output import check_format, note_reading, print_answers
from tidybert.errors import UsageError
from tidybert.files.read_options import ReadOptions
from tidybert.terminal_text import printable_json


@dataclass(frozen=True, kw_only=True)
class PredictFlags(flags.TrainedLengthFlag, flags.ExamplesFlags):
    out: Path | None = None
    """``--out FILE``: New file to write. If not set: stdout."""
    official_format: bool = False
    """``--official-format``: Write one JSON object of ids and answers, for SQuAD's script."""


@takes(given=PredictFlags, read=ReadOptions)
def predict(
    run: flags.RunArgument,
    file: flags.TextsArgument = "-",
    *,
    given: PredictFlags,
    read: ReadOptions,
) -> None:
    """Answer each text with one JSON line, in the order given, in constant memory.

    A line holds the task's answer (a label, a value, a choice, an answer, entities), its scores,
    num_tokens and truncated.
    """
    from tidybert.files.read_report import ReadReport
    from tidybert.inference.predictor import Predictor

    _check_out(given.out)
    check_format(run, file, read)
    predictor = Predictor(
        run,
        device=given.device,
        max_seq_length=given.max_seq_length,
        allow_pickle=given.allow_pickle,
    )
    task = predictor.task
    if given.official_format and task.name != "answer":
        raise UsageError(
            f"--official-format is for answers to questions, but {run} was trained to {task.name}"
        )
    report = ReadReport()
    examples = task.read(
        file, read, need_label=False, skip_bad_rows=given.skip_bad_rows, report=report
    )
    with _output(given.out) as stream:
        write = _official(stream) if given.official_format else _json_lines(stream)
        answered, truncated = print_answers(predictor.predict_stream, examples, file, write, stream)
        if given.official_format:
            stream.write("}\n")
    note_reading(report, truncated, answered, f"examples {task.truncation}")


def _check_out(out: Path | None) -> None:
    if out is None:
        return
    if out.exists():
        raise UsageError(f"--out {out} is there already; name a new file")
    if not (out.parent.is_dir() and os.access(out.parent, os.W_OK)):
        raise UsageError(
            f"--out {out} cannot be written: {out.parent} is not a folder that you may write to; "
            "make it first, or name another"
        )


def _json_lines(stream: TextIO) -> Callable[[dict[str, Any]], None]:
    def write(answer: dict[str, Any]) -> None:
        stream.write(f"{printable_json(json.dumps(answer, ensure_ascii=False))}\n")

    return write


def _official(stream: TextIO) -> Callable[[dict[str, Any]], None]:
    """Writes one object piece by piece, so that memory stays constant."""
    before = "{"

    def write(answer: dict[str, Any]) -> None:
        nonlocal before
        stream.write(f"{before}{json.dumps(answer['id'])}: {json.dumps(answer['answer'])}")
        before = ", "

    return write


@contextmanager
def _output(path: Path | None) -> Iterator[TextIO]:
    """Standard output in UTF-8, or a file that gets its name once it is complete."""
    if path is None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")
        yield sys.stdout
        return
    from tidybert.atomic_files import atomic_file

    with atomic_file(path) as partial, partial.open("w", encoding="utf-8") as stream:
        yield stream
