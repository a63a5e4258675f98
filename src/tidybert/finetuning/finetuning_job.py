"""FinetuningJob: all that a fine-tuning is, which the shell, Python and the estimators fill in.

Each parameter, with its type, default, help and checks, is declared here or in a dataclass that the
job holds.  Flags of the shell are made from the fields; the keyword arguments of
``tidybert.finetune`` and the parameters of the estimators are held to them by tests.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tidybert.errors import UsageError, param
from tidybert.files.reading import ReadOptions
from tidybert.options import check_value, named, option
from tidybert.tasks.registry import task_class
from tidybert.tasks.task_options import DescriptionsOption, TaskOptions
from tidybert.training.runs.provenance import Provenance
from tidybert.training.training_arguments import (
    PickleOption,
    RowsOption,
    RunOptions,
    TrainingArguments,
)

if TYPE_CHECKING:
    from tidybert.finetuning.finetuned_model import FinetunedModel
    from tidybert.tasks.task import AnyTask

SHARE_HELD_OUT: Final = 0.1
FEWEST_TO_HOLD_OUT: Final = 1000
FEWEST_DRAWN: Final = 20
"""Texts drawn at random, among others that were chosen to be labelled, that are dev by themselves:
fewer say next to nothing."""
_MOST_SEEDS: Final = 1000
_OF_SHELL: Final[Mapping[str, Any]] = {"log_to": None, "threads": None}


def share_by_rule(num_examples: int, arguments: TrainingArguments) -> float:
    """The share of labelled examples to hold out where nobody says how many.

    A tenth of 1,000 and more; of fewer only where an argument needs a measurement, because each of
    them helps more than a score.
    """
    needs_some = arguments.eval_steps or arguments.early_stopping_patience
    return SHARE_HELD_OUT if needs_some or num_examples >= FEWEST_TO_HOLD_OUT else 0.0


@dataclass(frozen=True, kw_only=True)
class FinetuningOptions(RunOptions, RowsOption, PickleOption, DescriptionsOption):
    """The options of a fine-tuning beside its data and the groups of the job, each a flag.

    Raises UsageError for a value that cannot be used, and for options that contradict each other.
    """

    PANEL: ClassVar = "Training"

    dev_fraction: float | None = option(None, at_least=0, below=1, estimator=False, panel="Data")
    """Fraction of --train to measure on without --dev. If not set: texts drawn at random, else 0.1
    of 1,000 examples and more."""
    corrections: str | Path | None = option(None, estimator=False, panel="Data")
    """``--corrections FILE``: CSV of tidybert check with right labels of --train, for classify."""
    max_seq_length: int | None = option(None)
    """Most tokens of a sequence. If not set: 384 for answer, 128 for other tasks."""
    seeds: int = option(1, at_least=1, at_most=_MOST_SEEDS, estimator=False)
    """``--seeds N``: Train N models with the seeds from --seed on, and keep the best."""
    search: bool = option(False, estimator=False)
    """``--search``: Try the paper's learning rates, batch sizes and epochs, and keep the best."""
    time_limit: float | None = option(None, above=0, needs="search", estimator=False)
    """``--time-limit MINUTES``: Start no trial of --search that would end after this time."""
    vocab: str | Path | None = option(None, panel="Checkpoints")
    """``--vocab MODEL``: Take this model's vocabulary, where MODEL is a size such as mini."""
    new_head: bool = option(False, panel="Checkpoints")
    """``--new-head``: Reinitialise the head even if MODEL already has one."""
    num_layers: int | None = option(None, at_least=1, panel="Checkpoints")
    """``--num-layers N``: Begin with N of MODEL's layers, evenly spread. If not set: all."""
    teacher: str | Path | None = option(None)
    """``--teacher RUN``: Learn this finished RUN's answers too, of the same task and labels; for
    embed a MODEL's vectors, or a regress RUN's scores."""
    class_names: bool | None = option(None, panel="Task")
    """``--class-names/--no-class-names``: For classify, begin a new head with the names of the
    classes as further examples. If not set: by the number of labels."""
    labels: Any = option(None, estimator=False, panel="Data")
    """``--labels NAME,NAME``: For classify, names of all classes. One that no text has yet is
    learned from its name, or from --descriptions."""
    teacher_weight: float = option(0.9, above=0, at_most=1, needs="teacher")
    """Share of the teacher's answers in the loss of a labelled example, above 0 and up to 1."""
    teacher_temperature: float = option(2.0, above=0, needs="teacher")
    """Divide logits of teacher and student by this before they are compared."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.search and self.seeds > 1:
            raise UsageError(
                f"give {param('search')} and {param('seeds')} one after the other: search first, "
                "then seeds"
            )

    @property
    def has_trials(self) -> bool:
        """Whether several models are trained, and the best one is kept."""
        return self.search or self.seeds > 1


@dataclass(frozen=True, eq=False)
class FinetuningJob(FinetuningOptions):
    """A task, a MODEL, labelled examples, and how to train on them.

    Args:
        task: the name of a task; or a task, which then has its labels: ``train`` and ``dev`` are
            lists of its examples, and without ``dev`` nothing is measured.
        model: a MODEL, or one in memory.  A size (``mini``) has random weights and needs ``vocab``.
        train: the path of a file, or rows in memory as ``tidybert.finetune`` takes them.
        dev: the same, to measure on; None holds ``share_held_out`` of ``train``.
        arguments: of the training.
        read: how files and rows are read.
        task_options: what the task is given beyond its data.
        example_weights: one for each example of a list, its share in the loss.
        provenance: where the examples of a task that has its labels came from.
        recorded_too: further entries of arguments.json, from the face that made the job.
        unlabelled: examples without labels, as ``train``, which ``teacher`` answers.

    Raises UsageError as its parts do, and for parts that contradict each other.
    """

    task: "str | AnyTask"
    model: "str | Path | FinetunedModel[Any]"
    train: Any
    dev: Any = None
    arguments: TrainingArguments = field(default_factory=TrainingArguments)
    _: KW_ONLY
    read: ReadOptions = field(default_factory=ReadOptions)
    task_options: TaskOptions = field(default_factory=TaskOptions)
    example_weights: Sequence[float] | None = None
    recorded_too: Mapping[str, Any] = field(default_factory=lambda: _OF_SHELL)
    provenance: Provenance = field(default_factory=Provenance)
    unlabelled: Any = option(None, needs="teacher")

    def __post_init__(self) -> None:
        super().__post_init__()
        arguments, name = self.arguments, self.task_class.name
        is_measured = self.dev is not None or bool(self.share_held_out(FEWEST_TO_HOLD_OUT))
        if arguments.early_stopping_patience is not None and not is_measured:
            raise UsageError(
                f"{param('early_stopping_patience')} needs examples to evaluate on: give "
                f"{param('dev')}"
            )
        if self.has_trials and self.out is None:
            raise UsageError(
                f"{param('search' if self.search else 'seeds')} trains several models: give "
                f"{param('out')}, a directory for them"
            )
        for each in ("class_names", "descriptions", "labels"):
            if getattr(self, each) and name != "classify":
                raise UsageError(f"{param(each)} is for classify, not for {name}")
        for each in ("descriptions", "labels"):
            if self.class_names is False and getattr(self, each):
                raise UsageError(f"{param('class_names', False)} contradicts {param(each)}")
        if self.corrections is not None and name != "classify":
            raise UsageError(f"{param('corrections')} is for classify, not for {name} yet")
        for each in named(TrainingArguments, searched=True) if self.search else ():
            if getattr(arguments, each) != getattr(TrainingArguments, each):
                raise UsageError(
                    f"{param(each)} is given, but {param('search')} sets it: leave out one of them"
                )
        check_value(TrainingArguments, "seed", arguments.seed + self.seeds - 1)

    @property
    def task_class(self) -> "type[AnyTask]":
        if isinstance(self.task, str):
            return task_class(self.task, self.task_options)
        return type(self.task)

    def share_held_out(self, num_examples: int, num_drawn: int = 0) -> float:
        """The share of ``train`` that is held out where there is no ``dev``.

        ``num_drawn`` examples were drawn at random to be labelled, and others were chosen.
        """
        if self.dev is not None or not isinstance(self.task, str):
            return 0.0
        if self.dev_fraction is not None:
            return self.dev_fraction
        if FEWEST_DRAWN <= num_drawn <= num_examples / 2:
            return num_drawn / num_examples
        if self.has_trials:
            return SHARE_HELD_OUT
        return share_by_rule(num_examples, self.arguments)

    @property
    def length(self) -> int:
        """Most tokens of a sequence: those given, or the task's default."""
        if self.max_seq_length is not None:
            return self.max_seq_length
        return self.task_class.default_max_seq_length

    def recorded(self) -> dict[str, Any]:
        """The job as arguments.json has it, by the names of the flags.

        A task with examples in memory records no files and no choice.
        """
        first = {"task": self.task_class.name, "model": str(self.model)}
        if not isinstance(self.task, str):
            return {**first, "max_seq_length": self.length, **asdict(self.arguments)}
        options = {name: getattr(self, name) for name in named(FinetuningOptions, recorded=True)}
        data = {"train": self.train, "dev": self.dev, "unlabelled": self.unlabelled}
        return {
            **first,
            "task": self.task,
            **{
                name: str(each) if isinstance(each, Path) else each
                for name, each in options.items()
            },
            **{
                name: str(each) if isinstance(each, str | Path) else None
                for name, each in data.items()
            },
            **self.recorded_too,
            **asdict(self.read),
            **asdict(self.task_options),
            **asdict(self.arguments),
        }
