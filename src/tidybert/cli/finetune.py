"""``tidybert finetune``: labelled text in, a trained and measured model out."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidybert.cli import shared_flags as flags
from tidybert.cli.flags import takes
from tidybert.cli.labelled_files import read_labelled
from tidybert.cli.output import note, print_json
from tidybert.errors import UsageError
from tidybert.files.read_options import ReadOptions
from tidybert.tasks.registry import task_flags
from tidybert.tasks.task_options import TaskOptions
from tidybert.training.training_arguments import TrainingArguments

if TYPE_CHECKING:
    from tidybert.finetuning import FinetunedModel

MOST_USED: Final = (
    "train",
    "dev",
    "out",
    "text",
    "label",
    "max_seq_length",
    "num_train_epochs",
    "learning_rate",
    "seed",
    "resume",
)
TaskArgument = Annotated[
    str, typer.Argument(metavar="TASK", help="classify, regress, choose, answer or tag.")
]
TrainOption = Annotated[
    str, typer.Option("--train", metavar="FILE", help="Labelled examples to train on.")
]
DevOption = Annotated[
    str | None,
    typer.Option("--dev", metavar="FILE", help="Labelled examples to measure on."),
]
DevFractionOption = Annotated[
    float,
    typer.Option(
        "--dev-fraction",
        help="Share of --train to measure on where --dev is not given.",
        rich_help_panel="Data",
    ),
]
LengthOption = Annotated[
    int | None,
    typer.Option(
        "--max-seq-length",
        help="Most tokens of a sequence. If not set: 384 for answer, 128 for other tasks.",
    ),
]
SeedsOption = Annotated[
    int,
    typer.Option(
        "--seeds",
        metavar="N",
        min=1,
        help="Train N models with the seeds from --seed on, and keep the best.",
        rich_help_panel="Training",
    ),
]
SearchOption = Annotated[
    bool,
    typer.Option(
        "--search",
        help="Try the paper's learning rates, batch sizes and epochs, and keep the best.",
        rich_help_panel="Training",
    ),
]
TimeLimitOption = Annotated[
    float | None,
    typer.Option(
        "--time-limit",
        metavar="MINUTES",
        help="Start no trial of --search that would end after this many minutes.",
        rich_help_panel="Training",
    ),
]
VocabOption = Annotated[
    str | None,
    typer.Option(
        "--vocab",
        metavar="MODEL",
        help="Take this model's vocabulary, where MODEL is a size such as mini.",
        rich_help_panel="Checkpoints",
    ),
]
NewHeadOption = Annotated[
    bool,
    typer.Option(
        "--new-head",
        help="Reinitialise the head even if MODEL already has one.",
        rich_help_panel="Checkpoints",
    ),
]


@takes(*MOST_USED, read=ReadOptions, options=task_flags(), arguments=TrainingArguments)
def finetune(
    task: TaskArgument,
    model: flags.ModelArgument,
    *,
    train: TrainOption,
    out: flags.RunOption,
    dev: DevOption = None,
    dev_fraction: DevFractionOption = 0.1,
    max_seq_length: LengthOption = None,
    seeds: SeedsOption = 1,
    search: SearchOption = False,
    time_limit: TimeLimitOption = None,
    vocab: VocabOption = None,
    resume: flags.ResumeOption = False,
    new_head: NewHeadOption = False,
    skip_bad_rows: flags.SkipBadRowsOption = False,
    device: flags.DeviceOption = "auto",
    allow_pickle: flags.AllowPickleOption = False,
    json: flags.JsonOption = False,
    read: ReadOptions,
    options: TaskOptions,
    arguments: TrainingArguments,
) -> None:
    """Fine-tune MODEL on labelled examples and write a RUN, which is a MODEL.

    tidybert checks the data first, and keeps the weights that do best on dev.
    """
    _check_trials(dev_fraction, search, seeds, time_limit)

    from tidybert.cli.progress import shown_training
    from tidybert.cli.results import print_trials
    from tidybert.finetuning import check_run, is_finished
    from tidybert.finetuning import finetune as train_model
    from tidybert.tasks.registry import task_class

    chosen = task_class(task, options)
    if resume and is_finished(out):
        note(f"the run in {out} is finished: there is nothing to resume")
        return
    check_run(out, resume)
    length = chosen.default_max_seq_length if max_seq_length is None else max_seq_length
    examples = labelled = read_labelled(chosen, train, read, skip_bad_rows)
    if dev is not None:
        job = chosen.from_examples(examples, options)
        held_out = read_labelled(job, dev, read, skip_bad_rows)
    else:
        examples, held_out = chosen.hold_out(labelled, dev_fraction, arguments.seed)
        job = chosen.from_examples(examples, options)
        note(
            f"no --dev: {len(held_out):,} of {len(labelled):,} examples are held out to measure on"
        )

    def train_run(given: TrainingArguments, run: Path, resumed: bool) -> "FinetunedModel":
        with shown_training(job.metric, given.train_batch_size) as callbacks:
            return train_model(
                job,
                model,
                examples,
                held_out,
                given,
                max_seq_length=length,
                settings={**asdict(read), **asdict(options)},
                vocab=vocab,
                run=run,
                resume=resumed,
                new_head=new_head,
                device=device,
                allow_pickle=allow_pickle,
                callbacks=callbacks,
            )

    if not search and seeds == 1:
        _show(train_run(arguments, out, resume), out, as_json=json)
        return

    from tidybert.finetuning import run_trials, shared_settings

    trials = run_trials(
        train_run,
        arguments,
        _variants(arguments, model, vocab, seeds, search),
        shared=shared_settings(
            model,
            vocab,
            labelled,
            None if dev is None else held_out,
            task=task,
            dev_fraction=dev_fraction if dev is None else None,
            max_seq_length=length,
            new_head=new_head,
            search=search,
            **asdict(options),
            **asdict(arguments),
        ),
        metric=job.metric,
        run=out,
        time_limit=None if time_limit is None else 60 * time_limit,
        note=note,
    )
    print_trials(trials, job, str(out), as_json=json)


def _check_trials(dev_fraction: float, search: bool, seeds: int, time_limit: float | None) -> None:
    if not 0 < dev_fraction < 1:
        raise UsageError(f"--dev-fraction is {dev_fraction}; expected a share between 0 and 1")
    if search and seeds > 1:
        raise UsageError("give --search and --seeds one after the other: search first, then seeds")
    if time_limit is not None and not (search and time_limit > 0):
        raise UsageError(
            f"--time-limit is {time_limit:g}; expected minutes above 0, and only with --search"
        )


def _variants(
    arguments: TrainingArguments, model: str, vocab: str | None, seeds: int, search: bool
) -> Any:
    """The arguments that the trials differ in."""
    from tidybert.finetuning import check_search, model_sources, search_variants, seed_variants

    if not search:
        return seed_variants(arguments, seeds)
    check_search(arguments)
    return search_variants(model_sources(model, vocab)[0])


def _show(finished: "FinetunedModel", out: Path, *, as_json: bool) -> None:
    """Print the metrics, and say how the training went."""
    from tidybert.cli.results import note_trained, print_metrics, trained_figures

    result = finished.result
    if as_json:
        print_json({**trained_figures(result, out), "collapsed": finished.collapsed})
        return
    print_metrics(finished.task, result.metrics)
    if finished.collapsed is not None:
        note(
            "warning: the model collapsed: it gives every dev example the answer "
            f"{finished.collapsed!r:.80}; try another --seed, a lower --learning-rate, or more "
            "--num-train-epochs"
        )
    note_trained(result, result.num_examples, "examples", stopped_early=result.stopped_early)
    note(f"the model is in {out}; next: tidybert predict {out} FILE")
