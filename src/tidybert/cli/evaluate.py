"""``tidybert evaluate``: a finished RUN's metrics on a labelled file."""

import sys
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from tidybert.cli import shared_flags as flags
from tidybert.cli.flags import takes
from tidybert.cli.output import check_format, note, print_json, read_labelled
from tidybert.cli.progress import shown_texts
from tidybert.errors import DataError
from tidybert.files.read_options import ReadOptions


@dataclass(frozen=True, kw_only=True)
class EvaluateFlags(flags.TrainedLengthFlag, flags.ExamplesFlags):
    report: Path | None = None
    """``--report DIR``: Write a page to look at, and its figures, into DIR."""
    resamples: int = field(default=1000, metadata={"min": 100})
    """``--resamples N``: Samples to draw for the intervals of --report; fewer take less time."""
    json: bool = False
    """``--json``: Print one JSON object whose keys are the metrics."""


@takes(given=EvaluateFlags, read=ReadOptions)
def evaluate(
    run: flags.RunArgument,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Labelled examples.")],
    *,
    given: EvaluateFlags,
    read: ReadOptions,
) -> None:
    """Measure a finished RUN on labelled examples."""
    if given.report is None:
        _evaluate(run, file, given, read)
        return
    from tidybert.reporting.writing import owned_report

    with owned_report(given.report):
        _evaluate(run, file, given, read)


def _evaluate(run: str, file: str, given: EvaluateFlags, read: ReadOptions) -> None:
    from tidybert.cli.results import print_metrics
    from tidybert.inference.predictor import Predictor

    check_format(run, file, read)
    predictor = Predictor(
        run,
        device=given.device,
        max_seq_length=given.max_seq_length,
        allow_pickle=given.allow_pickle,
    )
    task = predictor.task
    examples = read_labelled(task, file, read, given.skip_bad_rows)
    try:
        with shown_texts("evaluating") as advance:
            answers = predictor.examine(examples, advance)
    except DataError as error:
        raise DataError(f"{file}: {error.message}") from error
    metrics = {**answers.metrics(), **answers.counts()}
    total = f"of {metrics['num_examples']:,} examples"
    if metrics["num_truncated"]:
        note(f"{metrics['num_truncated']:,} {total} {task.truncation}")
    if metrics["num_windowed"]:
        note(
            f"{metrics['num_windowed']:,} {total} were read in windows, "
            f"{metrics['num_windows']:,} in all"
        )
    try:
        if given.json:
            print_json(metrics)
        else:
            print_metrics(task, metrics)
        sys.stdout.flush()
    finally:
        # A reader such as head, which closes the pipe early, still gets its report.
        if given.report is not None:
            from tidybert.reporting.evaluation import evaluation_of
            from tidybert.reporting.writing import write_report

            note("computing the report's confidence intervals: up to a minute")
            evaluation = evaluation_of(
                answers,
                metrics,
                run=run,
                file=file,
                date=datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %z"),
                max_seq_length=predictor.max_seq_length,
                num_resamples=given.resamples,
            )
            note(f"report: {write_report(evaluation, given.report)}")
