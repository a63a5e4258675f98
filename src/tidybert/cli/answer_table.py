"""Answers as a table for people, a row an example, printed as they come."""

from collections.abc import Mapping
from typing import Any, Final

from tidybert.cli.output import RowTable
from tidybert.tasks.answer import LabelledAnswer, TaskAnswer
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
        """Print the row of one example and its answer's dict."""
        found = TaskAnswer.of(answer)
        cells = found.cells()
        if self._top_k is not None and isinstance(found, LabelledAnswer):
            cells = found.likeliest(self._top_k).score_cells()
        if self._table is None:
            numbers = {name: _SCORE_WIDTH for name in cells if name in ("score", "value")}
            widths = {name: numbers.get(name, max(self._width, len(name))) for name in cells}
            self._table = RowTable(widths, right=tuple(numbers), rest="text")
        text = " ".join(" | ".join(filter(None, self._task.shown(example))).split())
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        self._table.add(*cells.values(), shown)
