"""Answers as a table for people, a row an example, printed as they come."""

from collections.abc import Mapping
from typing import Any, Final

from tidybert.cli.output import RowTable
from tidybert.tasks.task import AnyTask

_WIDEST: Final = 30
_SCORE_WIDTH: Final = 8
# Characters of a long text that are shown.
_SHOWN: Final = 160


class AnswerTable:
    """Shows what a task's model answers to each example; with ``top_k`` the likeliest classes."""

    def __init__(self, task: AnyTask, top_k: int | None = None) -> None:
        self._task, self._top_k = task, top_k
        self._width = min(max(map(len, task.names), default=_WIDEST), _WIDEST)
        self._table: RowTable | None = None

    def show(self, example: Any, answer: Mapping[str, Any]) -> None:
        """Print the row of one example and its ``prediction``."""
        cells = _cells(answer) if self._top_k is None else _likeliest(answer["scores"])
        if self._table is None:
            numbers = {name: _SCORE_WIDTH for name in cells if name in ("score", "value")}
            widths = {name: numbers.get(name, max(self._width, len(name))) for name in cells}
            self._table = RowTable(widths, right=tuple(numbers), rest="text")
        self._table.add(
            *cells.values(), _short(" | ".join(filter(None, self._task.shown(example))))
        )


def _cells(answer: Mapping[str, Any]) -> dict[str, str]:
    """The cells of an answer by heading."""
    score = {"score": f"{answer['score']:.4f}"} if "score" in answer else {}
    if "value" in answer:
        return {"value": f"{answer['value']:.4g}"}
    if "labels" in answer:
        return {"labels": ", ".join(answer["labels"]) or "(none)", **score}
    if "choice" in answer:
        return {"choice": answer["text"], **score}
    if "answer" in answer:
        return {"answer": answer["answer"] or "(no answer)", **score}
    if "entities" in answer:
        found = (f"{each['text']} ({each['type']})" for each in answer["entities"])
        return {"entities": ", ".join(found) or "(none)"}
    if "tags" in answer:
        return {"tags": " ".join(answer["tags"])}
    label = answer.get("label")
    return {"label": str(answer if label is None else label), **score}


def _likeliest(scores: Mapping[str, float]) -> dict[str, str]:
    """The cells of scores: a line for each class."""
    shown = [f"{score:.4f}" for score in scores.values()]
    return {"label": "\n".join(scores), "score": "\n".join(shown)}


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"
