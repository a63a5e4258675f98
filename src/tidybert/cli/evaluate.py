"""``tidybert evaluate``: a finished RUN's metrics on a labelled file."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidybert.cli import shared_flags as flags
from tidybert.cli.flags import takes
from tidybert.cli.output import check_format, note, print_json, read_labelled
from tidybert.cli.progress import shown_texts
from tidybert.errors import DataError
from tidybert.files.read_options import ReadOptions
from tidybert.model_files import ARGUMENTS_FILE

if TYPE_CHECKING:
    from tidybert.tasks.task import AnyTask


@dataclass(frozen=True, kw_only=True)
class EvaluateFlags(flags.TrainedLengthFlag, flags.AnswerFlags):
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
        precision=given.precision,
        max_seq_length=given.max_seq_length,
        allow_pickle=given.allow_pickle,
    )
    task = predictor.task
    examples = read_labelled(task, file, read, given.skip_bad_rows, like=predictor.reading)
    try:
        with shown_texts("evaluating") as advance:
            answers = predictor.examine(examples, advance)
    except DataError as error:
        raise DataError(f"{file}: {error.message}") from error
    metrics = {**answers.metrics(), **answers.counts(), "computed_in": predictor.precision}
    metrics |= _trained_on(run, file, task, examples)
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


def _trained_on(run: str, file: str, task: "AnyTask", examples: Sequence[Any]) -> dict[str, int]:
    """How many of the examples trained the model, noted; nothing where the RUN does not know."""
    from tidybert.catalog import find_model
    from tidybert.data.text_hashes import text_hashes
    from tidybert.data.training_texts import read_training_texts
    from tidybert.training.run_origin import file_identity, recorded_files

    directory = find_model(run)
    dev = recorded_files(directory / ARGUMENTS_FILE).get("dev", {})
    if "sha256" in dev and dev["sha256"] == file_identity(file).get("sha256"):
        note(f"warning: {file} chose the best weights in training, so these metrics flatter it")
    texts = read_training_texts(directory)
    if texts is None:
        return {}
    count = texts.num_among(text_hashes(map(task.identity, examples)))
    if count:
        least = "" if texts.is_whole else "at least "
        note(
            f"warning: the model was trained on {least}{count:,} of the {len(examples):,} examples "
            f"of {file}, so these metrics flatter it"
        )
    return {"num_trained_on": count}
