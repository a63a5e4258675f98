"""All examples of a file, or of rows in memory, at once: for the shell and for Python alike."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from tidybert.errors import DataWarning, UsageError, in_python
from tidybert.files.reading import Reading, ReadOptions, ReadReport
from tidybert.files.rows import in_memory
from tidybert.files.text_examples import TextExample
from tidybert.options import unknown_name
from tidybert.system.reporter import SILENT, Reporter
from tidybert.system.terminal import warn_user
from tidybert.tasks.registry import task_class, task_flags

if TYPE_CHECKING:
    from tidybert.tasks.multiple_choice import ChoiceExample
    from tidybert.tasks.questions.question_files import QuestionExample
    from tidybert.tasks.tags.tag_files import TaggedExample
    from tidybert.tasks.task import AnyTask
    from tidybert.tasks.vectors.vector_examples import VectorExample


def read_all(
    task: "AnyTask | type[AnyTask]",
    data: Any,
    options: ReadOptions | None = None,
    *,
    name: str = "data",
    need_label: bool = True,
    known: Sequence[str] = (),
    skip_bad_rows: bool = False,
    report: ReadReport | None = None,
    like: Reading | None = None,
    reporter: Reporter = SILENT,
    warns: bool = False,
) -> list[Any]:
    """Read the examples of a task; ``reporter`` shows how they were read.

    Args:
        data: a path, "-", rows in memory as ``in_memory`` takes them, or examples of the task.
        name: of the parameter that holds ``data``, for messages.
        options, need_label, known, skip_bad_rows, report, like: see ``ExampleReader``; a task that
            has learned labels knows those.
        warns: make a Python warning of rows that are skipped.

    Raises DataError and UsageError.
    """
    if isinstance(data, list | tuple) and data and is_example(data[0]):
        return list(data)
    report = report or ReadReport()
    if not isinstance(data, str | Path):
        if task.read.tuple_names is None:
            raise UsageError(f"{name}: the task {task.name} reads only files: give a path")
        data = in_memory(data, name, task.read.tuple_names, task.read.texts_alone)
    found = task.read(
        data,
        options,
        need_label=need_label,
        known=known if isinstance(task, type) else task.names,
        skip_bad_rows=skip_bad_rows,
        report=report,
        like=like,
    )
    examples = list(found)
    for line in report.lines(str):
        reporter.tell(line)
    if warns and report.num_problems:
        warn_user(in_python("\n".join(report.skipped_lines())), DataWarning)
    return examples


@overload
def load_data(
    data: Any, task: Literal["classify", "regress"] = ..., **options: Any
) -> list[TextExample]: ...
@overload
def load_data(data: Any, task: Literal["choose"], **options: Any) -> "list[ChoiceExample]": ...
@overload
def load_data(data: Any, task: Literal["answer"], **options: Any) -> "list[QuestionExample]": ...
@overload
def load_data(data: Any, task: Literal["tag"], **options: Any) -> "list[TaggedExample]": ...
@overload
def load_data(data: Any, task: Literal["embed"], **options: Any) -> "list[VectorExample]": ...
def load_data(data: Any, task: str = "classify", **options: Any) -> list[Any]:
    """The examples that ``tidybert finetune`` reads from a file, as a list.

    Args:
        data: the path of a file, or rows in memory as ``tidybert.finetune`` takes them.
        task: classify, regress, choose, answer, tag or embed.
        options: labelled=False reads rows without labels too; multi_label=True reads any number of
            labels; skip_bad_rows=True leaves bad rows out; and every option about files and
            columns, such as ``text="message"``.

    Raises DataError for rows that cannot be read, with their places, and UsageError.
    """
    need_label, skip = options.pop("labelled", True), options.pop("skip_bad_rows", False)
    parts = split_options(options, {"read": ReadOptions, "task": task_flags()})
    chosen = task_class(task, task_flags()(**parts["task"]))
    read = ReadOptions(**parts["read"])
    return read_all(chosen, data, read, need_label=need_label, skip_bad_rows=skip, warns=True)


def split_options(
    given: Mapping[str, Any], classes: Mapping[str, type]
) -> dict[str, dict[str, Any]]:
    """Keyword arguments by the dataclass that has an option of their name.

    ``classes`` are by a name for the result.  NumPy's scalars, as a grid of values has them, become
    Python's.  Raises UsageError for a name that nothing knows.
    """
    owner = {each.name: part for part, kind in classes.items() for each in fields(kind)}
    found: dict[str, dict[str, Any]] = {part: {} for part in classes}
    for name, value in given.items():
        if name not in owner:
            raise unknown_name(name, owner)
        found[owner[name]][name] = value.item() if isinstance(value, np.generic) else value
    return found


def is_example(value: object) -> bool:
    """Whether a value is an example of a task; all have a row."""
    return hasattr(value, "row") and not isinstance(value, tuple | Mapping)
