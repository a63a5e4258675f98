"""``tidybert finetune``: labelled text in, a trained and measured model out."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidybert.cli.flags import takes
from tidybert.cli.output import note, print_json
from tidybert.data.options import ReadOptions
from tidybert.errors import UsageError
from tidybert.training.arguments import TrainingArguments

if TYPE_CHECKING:
    from tidybert.data.examples import TextExample
    from tidybert.tasks.task import Task

TASKS = ("classify", "regress")


@takes(read=ReadOptions, arguments=TrainingArguments)
def finetune(
    task: Annotated[str, typer.Argument(metavar="TASK", help="classify or regress.")],
    model: Annotated[str, typer.Argument(metavar="MODEL", help="As tidybert models lists.")],
    *,
    train: Annotated[str, typer.Option("--train", metavar="FILE", help="Labelled examples.")],
    out: Annotated[Path, typer.Option("--out", metavar="RUN", help="New directory to write.")],
    dev: Annotated[
        str | None,
        typer.Option("--dev", metavar="FILE", help="Examples to measure on, read as --train is."),
    ] = None,
    dev_fraction: Annotated[
        float, typer.Option("--dev-fraction", help="Share of --train held out without --dev.")
    ] = 0.1,
    max_seq_length: Annotated[
        int, typer.Option("--max-seq-length", help="Tokens an example is cut to.")
    ] = 128,
    class_weight: Annotated[
        str | None,
        typer.Option("--class-weight", help="balanced: rare classes weigh more in the loss."),
    ] = None,
    vocab: Annotated[
        str | None,
        typer.Option("--vocab", metavar="MODEL", help="Whose vocabulary a size (mini) takes."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last checkpoint in RUN.")
    ] = False,
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Leave bad rows out and say which.")
    ] = False,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")] = "auto",
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Read weights from a pickle of MODEL.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    read: ReadOptions,
    arguments: TrainingArguments,
) -> None:
    """Fine-tune MODEL on labelled texts or pairs and write a RUN, which is a MODEL.

    The data are checked first. The weights that do best on dev are kept.
    """
    if task not in TASKS:
        raise UsageError(f"TASK is {task!r}; expected {' or '.join(TASKS)}")
    if class_weight not in (None, "balanced") or (class_weight and task != "classify"):
        raise UsageError(
            f"--class-weight {class_weight} for {task}: expected balanced, and only with classify"
        )
    if not 0 < dev_fraction < 1:
        raise UsageError(f"--dev-fraction is {dev_fraction}; expected a share between 0 and 1")

    from tidybert.cli.progress import shown_training
    from tidybert.cli.results import print_metrics
    from tidybert.finetuning import check_run, is_finished
    from tidybert.finetuning import finetune as train_model

    if resume and is_finished(out):
        note(f"the run in {out} is finished: there is nothing to resume")
        return
    check_run(out, resume)
    examples = _read(train, read, task, skip_bad_rows)
    held_out = _read(dev, read, task, skip_bad_rows) if dev else None
    if held_out is None:
        examples, held_out = _hold_out(examples, task, dev_fraction, arguments.seed)
        note(
            f"no --dev: {len(held_out):,} of {len(examples) + len(held_out):,} examples are held "
            "out to measure on"
        )
    job = _task(task, examples, class_weight)
    with shown_training(job.metric, arguments.train_batch_size) as callbacks:
        finished = train_model(
            job,
            model,
            examples,
            held_out,
            arguments,
            max_seq_length=max_seq_length,
            vocab=vocab,
            run=out,
            resume=resume,
            device=device,
            allow_pickle=allow_pickle,
            callbacks=callbacks,
        )
    result = finished.result
    if json:
        print_json(
            {
                **result.metrics,
                "best_step": result.best_step,
                "num_steps": result.num_steps,
                "seconds": result.seconds,
                "run": str(out),
            }
        )
        return
    print_metrics(task, result.metrics, job.label_names)
    early = ", stopped early" if result.stopped_early else ""
    rate = result.num_examples / result.seconds if result.seconds else 0.0
    note(
        f"{result.num_steps} steps in {result.seconds:.0f} s ({rate:.0f} examples/s){early}; the "
        f"weights are those of step {result.best_step}"
    )
    note(f"the model is in {out}; next: tidybert predict {out} FILE")


def _read(path: str, options: ReadOptions, task: str, skip_bad_rows: bool) -> "list[TextExample]":
    from tidybert.data.readers import ReadReport, read_examples

    report = ReadReport()
    examples = list(
        read_examples(
            path,
            options,
            need_label=True,
            scores=task == "regress",
            skip_bad_rows=skip_bad_rows,
            report=report,
        )
    )
    for line in report.lines():
        note(line)
    return examples


def _hold_out(
    examples: "Sequence[TextExample]", task: str, fraction: float, seed: int
) -> "tuple[list[TextExample], list[TextExample]]":
    from tidybert.data.splits import random_split, stratified_split

    texts = [(one.text, one.text_pair) for one in examples]
    if task == "regress":
        train, dev = random_split(len(examples), fraction, seed, texts=texts)
    else:
        labels = [one.label or "" for one in examples]
        train, dev = stratified_split(labels, fraction, seed, texts=texts)
    return [examples[index] for index in train], [examples[index] for index in dev]


def _task(task: str, examples: "Sequence[TextExample]", class_weight: str | None) -> "Task":
    from tidybert.data.examples import label_names
    from tidybert.tasks import Classification, Regression
    from tidybert.tasks.classification import balanced_class_weights

    if task == "regress":
        return Regression()
    weights = None
    if class_weight:
        weights = balanced_class_weights([one.label for one in examples if one.label is not None])
    return Classification(label_names(examples), weights)
