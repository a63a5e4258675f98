"""What a program gives ``Predictor.predict``, as examples of the task."""

from collections.abc import Mapping
from typing import Any

from tidybert.errors import DataError
from tidybert.files.in_memory import as_list, plain
from tidybert.files.reading import Reading
from tidybert.files.wording import count_of
from tidybert.tasks.labelled_examples import is_example, read_all
from tidybert.tasks.task import AnyTask
from tidybert.tasks.text_task import TextTask

_TABLES = ("columns", "column_names", "schema")


def examples_of(task: AnyTask, texts: Any, text_pairs: Any, like: Reading | None) -> list[Any]:
    """Examples without labels.

    Args:
        texts, text_pairs: see ``Predictor.predict``.
        like: how the data of training were read: a frame's columns are found by it.

    Raises DataError for what holds no texts, and for lists of unequal lengths.
    """
    if isinstance(texts, Mapping) or any(hasattr(texts, name) for name in _TABLES):
        return _from_rows(task, texts, text_pairs, like)
    rows = as_list(texts, "texts")
    takes_rows = task.read.tuple_names is not None
    if rows and (is_example(rows[0]) or (takes_rows and isinstance(rows[0], Mapping))):
        return _from_rows(task, rows, text_pairs, like)
    seconds: list[Any] | None = None
    of_texts = isinstance(task, TextTask) or task.inputs in ("text", "question", "choices")
    if text_pairs is None and of_texts and rows and all(map(_is_pair, rows)):
        rows, seconds = [row[0] for row in rows], [row[1] for row in rows]
    elif text_pairs is not None:
        seconds = as_list(text_pairs, "text_pairs")
    if seconds is not None and len(seconds) != len(rows):
        raise DataError(f"there are {len(rows)} texts and {len(seconds)} second texts")
    if not of_texts and task.inputs != "words":
        # A task of somebody's own may take anything.
        return task.from_texts(rows, seconds)
    firsts = _checked(rows, "texts", lists=task.inputs == "words")
    if seconds is not None:
        seconds = _checked(seconds, "text_pairs", lists=task.inputs == "choices")
    return task.from_texts(firsts, seconds)


def _from_rows(task: AnyTask, rows: Any, text_pairs: Any, like: Reading | None) -> list[Any]:
    if text_pairs is not None:
        raise DataError(
            "texts has columns of its own, and text_pairs was given too: give two columns, as in "
            "predict(frame['one'], frame['two'])"
        )
    if hasattr(rows, "columns") and len(rows) == 0:
        return []  # as for an empty list
    return read_all(task, rows, name="texts", need_label=False, like=like)


def _is_pair(row: Any) -> bool:
    return not isinstance(row, str | bytes) and hasattr(row, "__len__") and len(row) == 2


def _checked(values: list[Any], name: str, *, lists: bool) -> list[Any]:
    """The texts, or with ``lists`` the lists of texts too."""
    found = [plain(value) for value in values]
    for place, value in enumerate(found):
        if isinstance(value, str) or (lists and isinstance(value, list)):
            continue
        if isinstance(value, list):
            what = f"{count_of(len(value), 'value')} where one text is expected"
        elif value is None:
            what = "missing (None or NaN); drop it, or fill it in"
        else:
            what = f"{values[place]!r:.40}, of type {type(values[place]).__name__}; give a text"
        raise DataError(f"{name}[{place}] is {what}")
    return found
