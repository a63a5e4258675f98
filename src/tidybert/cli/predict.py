"""``tidybert predict``: one JSON line an example, streaming."""

import io
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidybert.cli import shared_flags as flags
from tidybert.cli.flags import takes
from tidybert.cli.output import check_format, note_reading, print_answers, resumable
from tidybert.errors import UsageError
from tidybert.files.read_options import ReadOptions

if TYPE_CHECKING:
    from tidybert.inference.answer_files import AnswerForm
    from tidybert.inference.predictor import Predictor


@dataclass(frozen=True, kw_only=True)
class PredictFlags(flags.TrainedLengthFlag, flags.ExamplesFlags):
    out: Path | None = None
    """``--out FILE``: New file to write. If not set: stdout."""
    resume: bool = False
    """``--resume``: Go on with a stopped run of the same --out."""
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
    from tidybert.inference.part_file import new_file

    if given.out is None:
        if given.resume:
            raise UsageError("--resume needs --out: standard output keeps nothing to go on with")
        _predict(run, file, given, read)
    else:
        with new_file(given.out, given.resume):
            _predict(run, file, given, read)


def _predict(run: str, file: str, given: PredictFlags, read: ReadOptions) -> None:
    from tidybert.files.read_report import ReadReport
    from tidybert.inference.answer_files import LINES, OFFICIAL, write_answers
    from tidybert.inference.predictor import Predictor

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
    form = OFFICIAL if given.official_format else LINES

    def examples(report: ReadReport) -> Iterator[Any]:
        return task.read(
            file, read, need_label=False, skip_bad_rows=given.skip_bad_rows, report=report
        )

    report = ReadReport()
    if given.out is None:
        answered, truncated = _print(predictor, examples(report), file, form)
    else:
        # A first reading finds bad rows before the work.
        total = sum(1 for _ in examples(report)) if Path(file).is_file() else None
        texts = examples(report if total is None else ReadReport())
        with resumable(given.out, given.resume):
            written = write_answers(predictor, texts, given.out, form, resume=given.resume)
        answered, truncated = written.num_texts, written.num_truncated
    note_reading(report, truncated, answered, f"examples {task.truncation}")


def _print(
    predictor: "Predictor", examples: Iterator[Any], file: str, form: "AnswerForm"
) -> tuple[int, int]:
    """Print the answers as they come; returns the numbers of answers and of texts cut."""
    stream = sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8")
    between = form.head

    def show(answer: dict[str, Any]) -> None:
        nonlocal between
        stream.write(between + form.entry(answer))
        between = form.between

    counts = print_answers(predictor.predict_stream, examples, file, show)
    # Without an answer the head has not been written.
    stream.write((form.head if not counts[0] else "") + form.tail)
    return counts
