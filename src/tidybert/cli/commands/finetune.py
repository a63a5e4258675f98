"""``tidybert finetune``: labelled text in, a trained and measured model out."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidybert.catalog import DEFAULT_MODEL
from tidybert.cli import flags
from tidybert.cli.flags import PanelCommand, note_changed, takes
from tidybert.cli.output import SHELL, note, print_json
from tidybert.errors import in_shell
from tidybert.files.reading import ReadOptions
from tidybert.finetuning.finetuning_job import FinetuningJob, FinetuningOptions
from tidybert.options import option, values_of
from tidybert.system.reporter import Reporter
from tidybert.tasks.registry import task_flags, task_names, unused_flags
from tidybert.tasks.task_options import TaskOptions
from tidybert.training.training_arguments import TrainingArguments

if TYPE_CHECKING:
    from tidybert.finetuning.finetuned_model import FinetunedModel

MOST_USED: Final = (
    "train", "dev", "out", "text", "label", "max_seq_length", "num_train_epochs", "learning_rate",
    "seed", "resume",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class FinetuneFlags(flags.RunFlags, FinetuningOptions, flags.ThreadsFlag, flags.JsonFlag):
    """The options of a job as flags, its files, and what only the shell has."""

    train: str = option(panel="Data")
    """``--train FILE``: Labelled examples to train on."""
    dev: str | None = option(None, panel="Data")
    """``--dev FILE``: Labelled examples to measure on."""
    unlabelled: str | None = option(None, panel="Data")
    """``--unlabelled FILE``: Examples without labels, which the RUN of --teacher answers; with
    --num-layers (not for embed) its states are learned first."""


class TaskCommand(PanelCommand):
    """A command whose help, after a TASK, shows the flags that this task has a use for."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Remember the TASK, because --help ends the parsing before it has a value."""
        ctx.meta["task"] = next((word for word in args if word in task_names()), None)
        return super().parse_args(ctx, args)

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        task = ctx.meta.get("task") or "TASK"
        formatter.write_usage(ctx.command_path, f"{task} [MODEL] --train FILE --out RUN [OPTIONS]")

    def shown_params(self, ctx: Any) -> list[Any]:
        shown = super().shown_params(ctx)
        task = ctx.meta.get("task")
        unused = unused_flags(task) if task else ()
        return [each for each in shown if each.name not in unused]


@takes(
    *MOST_USED,
    given=FinetuneFlags,
    read=ReadOptions,
    options=task_flags(),
    arguments=TrainingArguments,
)
def finetune(
    task: Annotated[str, typer.Argument(metavar="TASK", help=f"One of {', '.join(task_names())}.")],
    model: flags.ModelArgument = DEFAULT_MODEL,
    *,
    given: FinetuneFlags,
    read: ReadOptions,
    options: TaskOptions,
    arguments: TrainingArguments,
) -> None:
    """Fine-tune MODEL on labelled examples and write a RUN, which is a MODEL.

    tidybert checks the data first, and keeps the weights that do best on dev. See tidybert finetune
    TASK --help for the options of one task.
    """
    job = FinetuningJob(
        task,
        model,
        given.train,
        given.dev,
        arguments,
        read=read,
        task_options=options,
        recorded_too={"log_to": given.log_to, "threads": given.threads},
        unlabelled=given.unlabelled,
        **values_of(given, FinetuningOptions),
    )
    if given.is_done:
        return
    from tidybert.cli.progress import shown_training
    from tidybert.cli.results import print_trials
    from tidybert.finetuning.run_job import run_finetuning
    from tidybert.training.trackers import tracked

    @contextmanager
    def training(job: FinetuningJob, metric: str) -> "Iterator[Reporter]":
        assert job.out is not None
        with (
            tracked(job.out, given.log_to, SHELL) as track,
            shown_training(metric, job.arguments.batch_size, track) as reporter,
        ):
            yield reporter

    finished = run_finetuning(
        job,
        Reporter(
            note,
            in_shell,
            origin=lambda found: note_changed(given.config, found.files),
            training=training,
        ),
    )
    if finished.trials is not None:
        print_trials(finished.trials, finished.task, str(given.out), as_json=given.json)
    else:
        _show(finished, given)


def _show(finished: "FinetunedModel[Any]", given: FinetuneFlags) -> None:
    """Print the metrics, and say how the training went."""
    from tidybert.cli.results import note_trained, print_metrics, trained_figures
    from tidybert.finetuning.finetuning_run import collapse_message

    result, out = finished.result, given.out
    if given.json:
        print_json({**trained_figures(result, out), "collapsed": finished.collapsed})
        return
    print_metrics(finished.task, result.metrics)
    if finished.collapsed is not None:
        note(f"warning: {collapse_message(finished.collapsed)}")
    if result.num_steps:
        note_trained(result, result.num_examples, "examples", stopped_early=result.stopped_early)
    note(f"the model is in {out}; next: tidybert predict {out} FILE")
