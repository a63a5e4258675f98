"""The tasks by name, each imported when it is asked for; loads no torch by itself."""

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tidybert.errors import ConfigError, UsageError, param
from tidybert.tasks.task_options import TaskOptions

if TYPE_CHECKING:
    from tidybert.checkpoints.metadata import ModelMetadata
    from tidybert.checkpoints.model_directory import HeadDescription
    from tidybert.tasks.task import AnyTask


@dataclass(frozen=True)
class _Entry:
    """A task's class, and that of its options, which shows its flags without importing torch."""

    task: "str | type[AnyTask]"
    options: str | type[TaskOptions] = TaskOptions


_TASKS: Final[dict[str, _Entry]] = {
    "classify": _Entry(
        "tidybert.tasks.classification:Classification", "tidybert.tasks.text_options:ClassOptions"
    ),
    "multi-label": _Entry(
        "tidybert.tasks.multi_label:MultiLabelClassification",
        "tidybert.tasks.text_options:MultiLabelOptions",
    ),
    "regress": _Entry(
        "tidybert.tasks.regression:Regression", "tidybert.tasks.text_options:TextOptions"
    ),
    "choose": _Entry("tidybert.tasks.choices.multiple_choice:MultipleChoice"),
    "answer": _Entry(
        "tidybert.tasks.questions.question_answering:QuestionAnswering",
        "tidybert.tasks.questions.question_options:QuestionOptions",
    ),
    "tag": _Entry(
        "tidybert.tasks.tags.tagging:Tagging", "tidybert.tasks.task_options:WindowOptions"
    ),
}


def register(task: "type[AnyTask]") -> None:
    """Make a task of one's own known under its name, to ``finetune`` and to ``Predictor``."""
    _TASKS[task.name] = _Entry(task, task.options_class)


def task_names() -> list[str]:
    """The names that TASK can have; an option of one of these chooses any other task."""
    variants = {name for entry in _TASKS.values() for name in _options(entry).chooses.values()}
    return [name for name in _TASKS if name not in variants]


@cache
def task_flags() -> type[TaskOptions]:
    """One dataclass with the options of all tasks, a flag each; it is each task's options too."""
    found = [_options(entry) for entry in _TASKS.values()]
    bases = [
        each
        for each in dict.fromkeys(found)
        if not any(other is not each and issubclass(other, each) for other in found)
    ]
    return dataclass(frozen=True)(type("TaskFlags", tuple(bases), {}))


def task_class(name: str, options: TaskOptions | None = None) -> "type[AnyTask]":
    """The task that a name, and options, choose.

    Raises UsageError for a name that is unknown, and for options that the task does not take.
    """
    if name not in task_names():
        raise UsageError(f"TASK is {name!r}; expected one of {', '.join(task_names())}")
    options = options or TaskOptions()
    for option, variant in _options(_TASKS[name]).chooses.items():
        if getattr(options, option, None):
            name = variant
    taken = _options(_TASKS[name]).field_names()
    for option in options.given():
        if option not in taken:
            known = ", ".join(param(each) for each in sorted(taken)) or "none of these options"
            raise UsageError(f"{param(option)} has no meaning for {name}, which takes {known}")
    return _task(_TASKS[name])


def task_for(metadata: "ModelMetadata") -> "AnyTask":
    """The task that a finished RUN was trained for.

    Raises ConfigError for one that this program does not know.
    """
    if metadata.task not in _TASKS:
        raise ConfigError(
            f"tidybert.json names the task {metadata.task!r}; this program knows "
            f"{', '.join(_TASKS)}"
        )
    return _task(_TASKS[metadata.task]).from_metadata(metadata)


def foreign_metadata(head: "HeadDescription", max_seq_length: int) -> "ModelMetadata | None":
    """The metadata of a model that another program fine-tuned, from the task that reads its head.

    None where no task reads it.
    """
    from tidybert.checkpoints.metadata import ModelMetadata

    for entry in _TASKS.values():
        task = _task(entry)
        if task.reads_head(head):
            return ModelMetadata(task.name, task.names_in(head), max_seq_length)
    return None


def _task(entry: _Entry) -> "type[AnyTask]":
    found: Any = _imported(entry.task)
    return found  # type: ignore[no-any-return]


def _options(entry: _Entry) -> type[TaskOptions]:
    found: Any = _imported(entry.options)
    return found  # type: ignore[no-any-return]


def _imported(named: Any) -> Any:
    """The object that "module:name" names."""
    if not isinstance(named, str):
        return named
    module, _, name = named.partition(":")
    return getattr(import_module(module), name)
