"""The tasks by name, each imported when it is asked for."""

from importlib import import_module
from typing import Any, Final

from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import HeadDescription
from tidybert.errors import ConfigError, UsageError
from tidybert.tasks.task import Task
from tidybert.tasks.task_options import TaskOptions

AnyTask = Task[Any]

_TASKS: Final[dict[str, str | type[AnyTask]]] = {
    "classify": "tidybert.tasks.classification:Classification",
    "multi-label": "tidybert.tasks.multi_label:MultiLabelClassification",
    "regress": "tidybert.tasks.regression:Regression",
    "choose": "tidybert.tasks.choices.multiple_choice:MultipleChoice",
    "answer": "tidybert.tasks.questions.question_answering:QuestionAnswering",
    "tag": "tidybert.tasks.tags.tagging:Tagging",
}
_VARIANTS: Final = ("multi-label",)
"""Names that stand in tidybert.json, but that an option chooses and not a TASK."""


def register(task: type[AnyTask]) -> None:
    """Make a task of one's own known under its name, to ``finetune`` and to ``Predictor``."""
    _TASKS[task.name] = task


def task_names() -> list[str]:
    """What can stand for TASK."""
    return [name for name in _TASKS if name not in _VARIANTS]


def task_class(name: str, options: TaskOptions | None = None) -> type[AnyTask]:
    """The task that a name, and options, choose.

    Raises UsageError for a name that is unknown, and for options that the task does not take.
    """
    options = options or TaskOptions()
    if name not in task_names():
        raise UsageError(f"TASK is {name!r}; expected one of {', '.join(task_names())}")
    if name == "classify" and options.multi_label:
        name = "multi-label"
    task = _imported(name)
    options.refuse_others(name, task.takes)
    return task


def task_for(metadata: ModelMetadata) -> AnyTask:
    """The task that a finished RUN was trained for.

    Raises ConfigError for one that this program does not know.
    """
    if metadata.task not in _TASKS:
        raise ConfigError(
            f"tidybert.json names the task {metadata.task!r}; this program knows "
            f"{', '.join(_TASKS)}"
        )
    return _imported(metadata.task).from_metadata(metadata)


def foreign_metadata(head: HeadDescription, max_seq_length: int) -> ModelMetadata | None:
    """The metadata of a model that another program fine-tuned, from the task that reads its head.

    None where no task reads it.
    """
    names = head.label_names or ("LABEL_0", "LABEL_1")
    task = None
    if "BertForMultipleChoice" in head.architectures:
        return ModelMetadata(task="choose", max_seq_length=max_seq_length)
    if "BertForQuestionAnswering" in head.architectures:
        return ModelMetadata(task="answer", max_seq_length=max_seq_length)
    if "BertForTokenClassification" in head.architectures and head.label_names:
        task = "tag"
    elif "BertForSequenceClassification" in head.architectures:
        task = "classify"
        if head.problem_type == "multi_label_classification":
            task = "multi-label"
        elif head.problem_type == "regression" or len(names) == 1:
            return ModelMetadata(task="regress", max_seq_length=max_seq_length)
    if task is None:
        return None
    return ModelMetadata(task, names, max_seq_length)


def _imported(name: str) -> type[AnyTask]:
    found = _TASKS[name]
    if isinstance(found, str):
        module, _, attribute = found.partition(":")
        found = getattr(import_module(module), attribute)
        _TASKS[name] = found
    assert not isinstance(found, str)
    return found
