"""``tidybert evaluate``: a finished RUN's metrics on a labelled file."""

import sys
from dataclasses import dataclass
from typing import Annotated

import typer

from tidybert.cli import flags
from tidybert.cli.flags import takes
from tidybert.cli.output import check_format, note, print_json
from tidybert.cli.progress import shown_texts
from tidybert.files.reading import ReadOptions
from tidybert.inference.options import MeasureOptions, PredictorOptions, TrainedLengthOption
from tidybert.options import option, values_of
from tidybert.tasks.task_options import ScoreOption


@dataclass(frozen=True, kw_only=True)
class MetricsFlag:
    json: bool = option(False, recorded=False)
    """``--json``: Print one JSON object whose keys are the metrics."""


@dataclass(frozen=True, kw_only=True)
class EvaluateFlags(
    MeasureOptions, MetricsFlag, ScoreOption, TrainedLengthOption, flags.AnswerFlags
):
    pass


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
    from tidybert.inference.measurement import measure
    from tidybert.inference.predictor import Predictor

    check_format(run, file, read)
    predictor: Predictor = Predictor(run, **values_of(given, PredictorOptions))
    found = measure(
        predictor,
        file,
        read,
        skip_bad_rows=given.skip_bad_rows,
        tell=note,
        warn=lambda line: note(f"warning: {line}"),
        advance=lambda: shown_texts("evaluating"),
        texts=given.texts,
    )
    try:
        if given.json:
            print_json(found.metrics)
        else:
            print_metrics(predictor.task, found.metrics)
        sys.stdout.flush()
    finally:
        # A reader such as head, which closes the pipe early, still gets its report.
        if given.report is not None:
            from tidybert.reporting.evaluation import evaluation_of
            from tidybert.reporting.writing import write_report

            note("computing the report's confidence intervals: up to a minute")
            evaluation = evaluation_of(
                found.answers,
                found.metrics,
                run=run,
                file=file,
                max_seq_length=predictor.max_seq_length,
                num_resamples=given.resamples,
            )
            note(f"report: {write_report(evaluation, given.report)}")
