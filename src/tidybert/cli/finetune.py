"""``tidybert finetune``: labelled text in, a trained and measured model out."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidybert.cli.flags import takes
from tidybert.cli.output import note, print_json
from tidybert.errors import UsageError
from tidybert.files.read_options import ReadOptions
from tidybert.tasks.task_options import TaskOptions
from tidybert.training.training_arguments import TrainingArguments

if TYPE_CHECKING:
    from tidybert.tasks.registry import AnyTask


@takes(read=ReadOptions, options=TaskOptions, arguments=TrainingArguments)
def finetune(
    task: Annotated[
        str, typer.Argument(metavar="TASK", help="classify, regress, choose, answer or tag.")
    ],
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
        int | None,
        typer.Option(
            "--max-seq-length", help="Tokens of a sequence; 384 for answer, else 128, if not set."
        ),
    ] = None,
    seeds: Annotated[
        int,
        typer.Option("--seeds", metavar="N", min=1, help="Runs from --seed on; the best stays."),
    ] = 1,
    search: Annotated[
        bool,
        typer.Option("--search", help="Try the paper's rates, batch sizes and epochs on dev."),
    ] = False,
    time_limit: Annotated[
        float | None,
        typer.Option("--time-limit", metavar="MINUTES", help="Of training, for all of --search."),
    ] = None,
    vocab: Annotated[
        str | None,
        typer.Option("--vocab", metavar="MODEL", help="Whose vocabulary a size (mini) takes."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the last checkpoint in RUN.")
    ] = False,
    new_head: Annotated[
        bool, typer.Option("--new-head", help="Draw a head though MODEL has one for this task.")
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
    options: TaskOptions,
    arguments: TrainingArguments,
) -> None:
    """Fine-tune MODEL on labelled texts or pairs and write a RUN, which is a MODEL.

    The data are checked first. The weights that do best on dev are kept.
    """
    if not 0 < dev_fraction < 1:
        raise UsageError(f"--dev-fraction is {dev_fraction}; expected a share between 0 and 1")
    if search and seeds > 1:
        raise UsageError("--search and --seeds go one after the other: search first, then seeds")
    if time_limit is not None and not (search and time_limit > 0):
        raise UsageError(
            f"--time-limit is {time_limit:g}; expected minutes above 0, and only with --search"
        )

    from tidybert.cli.progress import shown_training
    from tidybert.cli.results import print_metrics, print_trials
    from tidybert.finetuning import (
        FinetunedModel,
        check_run,
        check_search,
        is_finished,
        model_sources,
        run_trials,
        search_variants,
        seed_variants,
        shared_settings,
    )
    from tidybert.finetuning import finetune as train_model
    from tidybert.tasks.registry import task_class

    chosen = task_class(task, options)
    if resume and is_finished(out):
        note(f"the run in {out} is finished: there is nothing to resume")
        return
    check_run(out, resume)
    length = chosen.default_max_seq_length if max_seq_length is None else max_seq_length
    examples = labelled = _read(chosen, train, read, skip_bad_rows)
    if dev:
        job = chosen.from_examples(examples, options)
        held_out = _read(job, dev, read, skip_bad_rows)
    else:
        examples, held_out = chosen.hold_out(labelled, dev_fraction, arguments.seed)
        job = chosen.from_examples(examples, options)
        note(
            f"no --dev: {len(held_out):,} of {len(examples) + len(held_out):,} examples are held "
            "out to measure on"
        )

    def train_run(given: TrainingArguments, run: Path, resumed: bool) -> FinetunedModel:
        with shown_training(job.metric, given.train_batch_size) as callbacks:
            return train_model(
                job,
                model,
                examples,
                held_out,
                given,
                max_seq_length=length,
                settings=_given(read, options),
                vocab=vocab,
                run=run,
                resume=resumed,
                new_head=new_head,
                device=device,
                allow_pickle=allow_pickle,
                callbacks=callbacks,
            )

    if search or seeds > 1:
        if search:
            check_search(arguments)
        trials = run_trials(
            train_run,
            arguments,
            search_variants(model_sources(model, vocab)[0])
            if search
            else seed_variants(arguments, seeds),
            shared=shared_settings(
                model,
                vocab,
                labelled,
                held_out if dev else None,
                task=task,
                dev_fraction=None if dev else dev_fraction,
                max_seq_length=length,
                new_head=new_head,
                search=search,
                **_given(options, arguments),
            ),
            metric=job.metric,
            run=out,
            time_limit=None if time_limit is None else 60 * time_limit,
            note=note,
        )
        print_trials(trials, job, str(out), as_json=json)
        return
    finished = train_run(arguments, out, resume)
    result = finished.result
    if json:
        print_json(
            {
                **result.metrics,
                "collapsed": finished.collapsed,
                "best_step": result.best_step,
                "num_steps": result.num_steps,
                "seconds": result.seconds,
                "run": str(out),
            }
        )
        return
    print_metrics(finished.task, result.metrics)
    if finished.collapsed is not None:
        note(
            "warning: the model collapsed: every dev example is given the answer "
            f"{finished.collapsed!r:.80}; try another --seed, a lower --learning-rate, or more "
            "--num-train-epochs"
        )
    early = ", stopped early" if result.stopped_early else ""
    rate = result.num_examples / result.seconds if result.seconds else 0.0
    note(
        f"{result.num_steps} steps in {result.seconds:.0f} s ({rate:.0f} examples/s){early}; the "
        f"weights are those of step {result.best_step}"
    )
    note(f"the model is in {out}; next: tidybert predict {out} FILE")


def _given(*groups: Any) -> dict[str, Any]:
    """What was said of files, task and training, by the names of the flags."""
    return {name: value for group in groups for name, value in asdict(group).items()}


def _read(
    task: "AnyTask | type[AnyTask]", path: str, options: ReadOptions, skip_bad_rows: bool
) -> list[Any]:
    from tidybert.files.text_examples import ReadReport

    report = ReadReport()
    examples = list(
        task.read(path, options, need_label=True, skip_bad_rows=skip_bad_rows, report=report)
    )
    for line in report.lines():
        note(line)
    return examples
