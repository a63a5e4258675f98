"""``tidybert evaluate``: a finished RUN's metrics on a labelled file."""

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidybert.cli.flags import takes
from tidybert.cli.output import note, print_json
from tidybert.errors import DataError
from tidybert.files.read_options import ReadOptions

if TYPE_CHECKING:
    from tidybert.inference.predictor import Examination


@takes(read=ReadOptions)
def evaluate(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A finished RUN.")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="Labelled examples.")],
    *,
    max_seq_length: Annotated[
        int | None,
        typer.Option(
            "--max-seq-length", help="Tokens an example is cut to; as trained if not set."
        ),
    ] = None,
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Leave bad rows out and say which.")
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="DIR", help="Write a page to look at, and its figures."),
    ] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")] = "auto",
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Read weights from a pickle of RUN.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print one object whose keys are the metrics.")
    ] = False,
    read: ReadOptions,
) -> None:
    """Measure a finished RUN on labelled examples."""
    from tidybert.cli.results import print_metrics
    from tidybert.files.text_examples import ReadReport
    from tidybert.inference.predictor import Predictor

    if report is not None:
        from tidybert.reporting.writing import check_report_directory

        check_report_directory(report)
    predictor = Predictor(
        run, device=device, max_seq_length=max_seq_length, allow_pickle=allow_pickle
    )
    found = ReadReport()
    task = predictor.task
    examples = list(
        task.read(file, read, need_label=True, skip_bad_rows=skip_bad_rows, report=found)
    )
    for line in found.lines():
        note(line)
    try:
        examination = predictor.examine(examples)
    except DataError as error:
        raise DataError(f"{file}: {error.message}") from error
    metrics = examination.metrics()
    if metrics["num_truncated"]:
        note(
            f"{metrics['num_truncated']:,} of {metrics['num_examples']:,} examples "
            f"{task.truncation}"
        )
    if metrics["num_windowed"]:
        note(
            f"{metrics['num_windowed']:,} of {metrics['num_examples']:,} examples were read in "
            f"windows, {metrics['num_windows']:,} in all"
        )
    try:
        if json:
            print_json(metrics)
        else:
            print_metrics(task, metrics)
        sys.stdout.flush()
    finally:
        # Also where nobody reads the metrics to their end, as head does not.
        if report is not None:
            _write_report(report, examination, metrics, run, file, predictor.max_seq_length)


def _write_report(
    directory: Path,
    examination: "Examination",
    metrics: dict[str, Any],
    run: str,
    file: str,
    max_seq_length: int,
) -> None:
    from tidybert.reporting.examining import evaluation_of
    from tidybert.reporting.writing import write_report

    note("drawing the report's intervals: up to a minute")
    page = write_report(
        evaluation_of(
            examination,
            metrics,
            run=run,
            file=file,
            date=datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %z"),
            max_seq_length=max_seq_length,
        ),
        directory,
    )
    note(f"report: {page}")
