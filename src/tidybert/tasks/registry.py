"""The tasks by name, each imported when it is asked for; loads no torch by itself."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tidybert.errors import ConfigError, UsageError, param, suggestion
from tidybert.files.reading import ReadOptions
from tidybert.options import declared
from tidybert.tasks.task_options import (
    ClassOptions,
    MultiLabelOptions,
    QuestionOptions,
    TagOptions,
    TaskOptions,
    TextOptions,
    VectorOptions,
)

if TYPE_CHECKING:
    from tidybert.checkpoints.metadata import ModelMetadata
    from tidybert.checkpoints.model_directory import HeadDescription
    from tidybert.tasks.task import AnyTask


@dataclass(frozen=True)
class _Entry:
    """A task: its class, imported when it is asked for, its options, and what its files have.

    files: the parts that options of ReadOptions are about.
    """

    task: "str | type[AnyTask]"
    options: type[TaskOptions]
    files: tuple[str, ...] = ("columns", "pairs", "labels", "headers", "tables")


_SCORED: Final = ("columns", "pairs", "headers", "tables")
_TASKS: Final = {
    "classify": _Entry("tidybert.tasks.classification:Classification", ClassOptions),
    "soft": _Entry("tidybert.tasks.classification:SoftClassification", ClassOptions),
    "multi-label": _Entry("tidybert.tasks.multi_label:MultiLabelClassification", MultiLabelOptions),
    "regress": _Entry("tidybert.tasks.regression:Regression", TextOptions, _SCORED),
    "choose": _Entry("tidybert.tasks.multiple_choice:MultipleChoice", TaskOptions, ("tables",)),
    "answer": _Entry(
        "tidybert.tasks.questions.question_answering:QuestionAnswering", QuestionOptions, ()
    ),
    "tag": _Entry("tidybert.tasks.tags.tagging:Tagging", TagOptions, ("columns",)),
    "embed": _Entry(
        "tidybert.tasks.vectors.sentence_vectors:SentenceVectors", VectorOptions, _SCORED
    ),
}


def register(task: "type[AnyTask]") -> None:
    """Make your own task known under its name, to ``finetune`` and to ``Predictor``."""
    _TASKS[task.name] = _Entry(task, task.options_class)


def task_names() -> list[str]:
    """The names that TASK can have; an option of one of these chooses any other task."""
    variants = {name for each in _TASKS.values() for name in each.options.chooses.values()}
    return [name for name in _TASKS if name not in variants]


@cache
def task_flags() -> type[TaskOptions]:
    """One dataclass with the options of all tasks, a flag each; it is each task's options too."""
    found = [each.options for each in _TASKS.values()]
    bases = [
        each
        for each in dict.fromkeys(found)
        if not any(other is not each and issubclass(other, each) for other in found)
    ]
    return dataclass(frozen=True)(type("TaskFlags", tuple(bases), {}))


def unused_flags(name: str) -> set[str]:
    """The options of other tasks, and those of files that this task does not read."""
    entry, parts = _TASKS[name], {each.name: declared(each).part for each in fields(ReadOptions)}
    unread = {each for each, part in parts.items() if part and part not in entry.files}
    return (task_flags().field_names() - entry.options.field_names()) | unread


def task_class(name: str, options: TaskOptions | None = None) -> "type[AnyTask]":
    """The task that a name, and options, choose.

    Raises UsageError for a name that is unknown, and for options that the task does not take.
    """
    if name not in task_names():
        names = task_names()
        raise UsageError(
            f"TASK is {name!r}; expected one of {', '.join(names)}{suggestion(name, names)}"
        )
    options = options or TaskOptions()
    name = _variant(name, vars(options))
    taken = _TASKS[name].options.field_names()
    for option in options.given():
        if option not in taken:
            known = ", ".join(param(each) for each in sorted(taken)) or "none of these options"
            raise UsageError(f"{param(option)} has no meaning for {name}, which takes {known}")
    return _task(name)


def task_for(metadata: "ModelMetadata") -> "AnyTask":
    """The task that a finished RUN was trained for.

    Raises ConfigError for a task or a setting that this program does not know.
    """
    from tidybert.checkpoints.metadata import KnownSettings

    if metadata.task not in _TASKS:
        raise ConfigError(
            f"tidybert.json names the task {metadata.task!r}; this program knows "
            f"{', '.join(_TASKS)}"
        )
    task = _task(_variant(metadata.task, metadata.settings)).from_metadata(metadata)
    # A task leaves out settings that it does not need, but they are known.
    known = {*KnownSettings.__annotations__, *task.settings()}
    for name in metadata.settings:
        if name not in known:
            raise ConfigError(
                f"tidybert.json has the unknown setting {name!r:.40}{suggestion(name, known)}"
            )
    return task


def foreign_metadata(head: "HeadDescription", max_seq_length: int) -> "ModelMetadata | None":
    """The metadata of a model that another program fine-tuned, from the task that reads its head.

    None where no task reads it.  A cross-encoder of sentence-transformers takes pairs.
    """
    from tidybert.checkpoints.example_kinds import PAIR
    from tidybert.checkpoints.metadata import ModelMetadata

    for name in _TASKS:
        task = _task(name)
        if task.reads_head(head):
            names, length = task.names_in(head), min(max_seq_length, head.longest or max_seq_length)
            settings = dict(task.foreign_settings)
            if head.activation is None:
                return ModelMetadata(task.name, names, length, settings=settings)
            settings["activation"] = head.activation
            return ModelMetadata(task.name, names, length, PAIR, settings)
    return None


def _variant(name: str, given: Mapping[str, Any]) -> str:
    """The task that an option of this one chooses instead, where it is given."""
    chooses = _TASKS[name].options.chooses
    return next((variant for option, variant in chooses.items() if given.get(option)), name)


def _task(name: str) -> "type[AnyTask]":
    found: Any = _TASKS[name].task
    if isinstance(found, str):
        module, _, attribute = found.partition(":")
        found = getattr(import_module(module), attribute)
    return found  # type: ignore[no-any-return]
