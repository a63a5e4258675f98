"""Files of examples as the commands read them, with notes about what the reading found."""

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TextIO

from tidybert.cli.output import note
from tidybert.files.read_options import ReadOptions

if TYPE_CHECKING:
    from tidybert.files.read_report import ReadReport
    from tidybert.tasks.task import AnyTask


def read_labelled(
    task: "AnyTask | type[AnyTask]", path: str, options: ReadOptions, skip_bad_rows: bool
) -> list[Any]:
    """All labelled examples of a file."""
    from tidybert.files.read_report import ReadReport

    report = ReadReport()
    examples = list(
        task.read(path, options, need_label=True, skip_bad_rows=skip_bad_rows, report=report)
    )
    note(*report.lines(str))
    return examples


def check_format(run: str, path: str, options: ReadOptions) -> None:
    """Refuse a --format that the task of RUN does not read, before its model is loaded."""
    if options.format is not None:
        from tidybert.checkpoints.model_directory import ModelDirectory
        from tidybert.inference.loading import read_finished
        from tidybert.tasks.registry import task_for

        task = task_for(read_finished(ModelDirectory.open(run)))
        task.read.formats.check(path, options.format)


def print_answers(
    answer: Callable[[Iterator[Any]], Iterator[dict[str, Any]]],
    examples: Iterator[Any],
    file: str,
    show: Callable[[dict[str, Any]], None],
    stream: TextIO | None = None,
) -> tuple[int, int]:
    """Show the answer to each example as soon as it comes.

    Args:
        answer: a predictor's ``predict_stream``.
        file: where the examples come from; "-" is standard input, whose writer may wait for each
            answer.
        stream: where ``show`` writes; None: stdout.

    Returns the numbers of answers, and of those whose text was cut.
    """
    from tidybert.inference.arrivals import as_it_comes

    answered = truncated = 0
    with as_it_comes(examples, file) as coming:
        for each in answer(coming):
            show(each)
            if answered == 0 or file == "-":
                (stream or sys.stdout).flush()
            answered += 1
            truncated += each["truncated"]
    return answered, truncated


def note_reading(report: "ReadReport", truncated: int, total: int, cut: str) -> None:
    """Note what the reading found, and how many of the texts were cut; ``cut`` says how."""
    note(*report.lines(str))
    if truncated:
        note(f"{truncated:,} of {total:,} {cut}")
