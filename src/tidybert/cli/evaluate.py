"""``tidybert evaluate``: a finished RUN's metrics on a labelled file."""

from typing import Annotated

import typer

from tidybert.cli.flags import takes
from tidybert.cli.output import note, print_json
from tidybert.data.options import ReadOptions


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
    from tidybert.data.examples import ReadReport
    from tidybert.inference.predictor import Predictor

    predictor = Predictor(
        run, device=device, max_seq_length=max_seq_length, allow_pickle=allow_pickle
    )
    report = ReadReport()
    task = predictor.task
    examples = list(
        task.read(file, read, need_label=True, skip_bad_rows=skip_bad_rows, report=report)
    )
    for line in report.lines():
        note(line)
    metrics = predictor.evaluate(examples)
    if metrics["num_truncated"]:
        note(
            f"{metrics['num_truncated']:,} of {metrics['num_examples']:,} examples were cut to "
            f"{predictor.max_seq_length} tokens"
        )
    if json:
        print_json(metrics)
    else:
        print_metrics(task, metrics)
