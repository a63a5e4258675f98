"""``tidybert finetune``: labelled text in, a trained and measured model out."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import typer

from tidybert.cli import shared_flags as flags
from tidybert.cli.config_file import NOT_RECORDED, note_changed
from tidybert.cli.flags import PanelCommand, takes
from tidybert.cli.output import note, print_json
from tidybert.errors import UsageError
from tidybert.files.read_options import ReadOptions
from tidybert.tasks.registry import task_flags, task_names, unused_flags
from tidybert.tasks.task_options import TaskOptions
from tidybert.training.training_arguments import TrainingArguments

if TYPE_CHECKING:
    from tidybert.finetuning import FinetunedModel
    from tidybert.tasks.task import AnyTask

MOST_USED: Final = (
    "train", "dev", "out", "text", "label", "max_seq_length", "num_train_epochs", "learning_rate",
    "seed", "resume",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class FinetuneFlags(flags.RunFlags, flags.ExamplesFlags, flags.JsonFlag):
    """The flags of finetune beside those of its files, its task and its training."""

    PANEL: ClassVar = "Training"
    PANELS: ClassVar = {
        "Data": ("train", "dev", "dev_fraction", "corrections"),
        "Checkpoints": ("vocab", "new_head"),
    }

    train: str
    """``--train FILE``: Labelled examples to train on."""
    dev: str | None = None
    """``--dev FILE``: Labelled examples to measure on."""
    dev_fraction: float = 0.1
    """Share of --train to measure on where --dev is not given; 0 to train on all, as --few does."""
    corrections: str | None = None
    """``--corrections FILE``: CSV of tidybert check with right labels of --train, for classify."""
    max_seq_length: int | None = None
    """Most tokens of a sequence. If not set: 384 for answer, 128 for other tasks."""
    few: bool = False
    """``--few``: Compare ways to learn from at most 64 labels a class, and take the best."""
    seeds: int = field(default=1, metadata={"min": 1, "max": 1000})
    """``--seeds N``: Train N models with the seeds from --seed on, and keep the best."""
    search: bool = False
    """``--search``: Try the paper's learning rates, batch sizes and epochs, and keep the best."""
    time_limit: float | None = None
    """``--time-limit MINUTES``: Start no trial of --search that would end after this time."""
    vocab: str | None = None
    """``--vocab MODEL``: Take this model's vocabulary, where MODEL is a size such as mini."""
    new_head: bool = False
    """``--new-head``: Reinitialise the head even if MODEL already has one."""

    def __post_init__(self) -> None:
        if not 0 <= self.dev_fraction < 1:
            raise UsageError(
                f"--dev-fraction is {self.dev_fraction}; expected a share from 0 to below 1"
            )
        if self.few and (self.search or self.seeds > 1):
            raise UsageError("--few chooses by itself: leave out --search and --seeds")
        if self.search and self.seeds > 1:
            raise UsageError(
                "give --search and --seeds one after the other: search first, then seeds"
            )
        if self.time_limit is not None and not (self.search and self.time_limit > 0):
            raise UsageError(
                f"--time-limit is {self.time_limit:g}; expected minutes above 0, and only with "
                "--search"
            )


class TaskCommand(PanelCommand):
    """A command whose help, after a TASK, shows the flags that this task has a use for."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Remember the TASK, because --help ends the parsing before it has a value."""
        ctx.meta["task"] = next((word for word in args if word in task_names()), None)
        return super().parse_args(ctx, args)

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        task = ctx.meta.get("task") or "TASK"
        formatter.write_usage(ctx.command_path, f"{task} MODEL --train FILE --out RUN [OPTIONS]")

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
    model: flags.ModelArgument,
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
    from tidybert.finetuning import is_resumed_in_vain, owned_run
    from tidybert.tasks.registry import task_class

    chosen = task_class(task, options)
    if given.resume and is_resumed_in_vain(given.out, given.keep_checkpoints):
        note(f"the run in {given.out} is finished: there is nothing to resume")
        return
    with owned_run(given.out, given.resume, given.force):
        _finetune(task, chosen, model, given, read, options, arguments)


def _finetune(
    task: str,
    chosen: "type[AnyTask]",
    model: str,
    given: FinetuneFlags,
    read: ReadOptions,
    options: TaskOptions,
    arguments: TrainingArguments,
) -> None:
    from tidybert.cli.progress import shown_training, tensorboard_figures
    from tidybert.cli.results import print_trials
    from tidybert.finetuning import ProbeMemory, choose_way, finetune_examples, recommend_few
    from tidybert.finetuning.training_examples import read_training_examples

    length = chosen.default_max_seq_length if given.max_seq_length is None else given.max_seq_length
    data = read_training_examples(
        chosen,
        given.train,
        given.dev,
        options,
        read,
        dev_fraction=0 if given.few else given.dev_fraction,
        seed=arguments.seed,
        corrections=given.corrections,
        skip_bad_rows=given.skip_bad_rows,
        tell=note,
    )
    made_from = replace(
        data.origin, name=given.out.resolve().name, flags=_recorded(task, given, read, options)
    )
    note_changed(given.config, made_from.files)

    probe = ProbeMemory()

    def train_run(varied: TrainingArguments, run: Path, resumed: bool) -> "FinetunedModel":
        with (
            tensorboard_figures(run, given.tensorboard) as add_figure,
            shown_training(data.job.metric, varied.train_batch_size, add_figure) as callbacks,
        ):
            return finetune_examples(
                data.job,
                model,
                data.examples,
                data.held_out or None,
                varied,
                max_seq_length=length,
                vocab=given.vocab,
                run=run,
                resume=resumed,
                new_head=given.new_head or given.few,
                device=given.device,
                allow_pickle=given.allow_pickle,
                keep_checkpoints=given.keep_checkpoints,
                force=given.force and run == given.out,
                made_from=made_from,
                probe=probe,
                callbacks=callbacks,
            )

    if given.few:
        train_some = partial(_train_in_memory, data.job, model, given, length)
        way = choose_way(data.job, data.examples, arguments, train_some, note)
        finished = train_run(way.arguments, given.out, given.resume)
        _show(finished, given.out, as_json=given.json, few=way.figures())
        return
    recommend_few(data.job, len(data.examples), note)
    if not given.search and given.seeds == 1:
        _show(train_run(arguments, given.out, given.resume), given.out, as_json=given.json)
        return

    from tidybert.finetuning import clear_run, run_trials, shared_settings

    if given.force:
        clear_run(given.out)
    trials = run_trials(
        train_run,
        arguments,
        _variants(arguments, model, given),
        shared=shared_settings(
            model,
            given.vocab,
            data.labelled,
            None if given.dev is None else data.held_out,
            task=chosen.name,
            dev_fraction=given.dev_fraction if given.dev is None else None,
            max_seq_length=length,
            new_head=given.new_head,
            search=given.search,
            **asdict(options),
            **asdict(arguments),
        ),
        metric=data.job.metric,
        run=given.out,
        time_limit=None if given.time_limit is None else 60 * given.time_limit,
        note=note,
    )
    print_trials(trials, data.job, str(given.out), as_json=given.json)


def _train_in_memory(
    job: "AnyTask",
    model: str,
    given: FinetuneFlags,
    length: int,
    examples: Sequence[Any],
    arguments: TrainingArguments,
) -> "FinetunedModel":
    """Train on some of the examples, for a comparison alone."""
    from tidybert.finetuning import finetune_examples

    return finetune_examples(
        job,
        model,
        examples,
        None,
        arguments,
        max_seq_length=length,
        vocab=given.vocab,
        new_head=True,
        device=given.device,
        allow_pickle=given.allow_pickle,
    )


def _recorded(
    task: str, given: FinetuneFlags, read: ReadOptions, options: TaskOptions
) -> dict[str, Any]:
    """The flags that repeat a run, for arguments.json; each trial counts as a run of its own."""
    flags = {name: each for name, each in asdict(given).items() if name not in NOT_RECORDED}
    flags |= {"seeds": 1, "search": False, "time_limit": None}
    if given.few:
        # The way that it chooses is recorded by its arguments, and would not be chosen again.
        flags |= {"few": False, "dev_fraction": 0.0, "new_head": True}
    return {"task": task, **flags, **asdict(read), **asdict(options)}


def _variants(arguments: TrainingArguments, model: str, given: FinetuneFlags) -> Any:
    """The arguments that the trials differ in."""
    from tidybert.finetuning import check_search, model_sources, search_variants, seed_variants

    if not given.search:
        return seed_variants(arguments, given.seeds)
    check_search(arguments)
    return search_variants(model_sources(model, given.vocab)[0])


def _show(
    finished: "FinetunedModel",
    out: Path,
    *,
    as_json: bool,
    few: Mapping[str, Any] | None = None,
) -> None:
    """Print the metrics, and say how the training went; ``few``: what --few found."""
    from tidybert.cli.results import note_trained, print_metrics, trained_figures
    from tidybert.finetuning import collapse_message

    result = finished.result
    if as_json:
        found = {} if few is None else {"few": few}
        print_json({**trained_figures(result, out), "collapsed": finished.collapsed, **found})
        return
    print_metrics(finished.task, result.metrics)
    if finished.collapsed is not None:
        note(f"warning: {collapse_message(finished.collapsed)}")
    note_trained(result, result.num_examples, "examples", stopped_early=result.stopped_early)
    note(f"the model is in {out}; next: tidybert predict {out} FILE")
