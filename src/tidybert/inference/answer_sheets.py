"""Answers as a table for a spreadsheet: the columns of the input, and each answer beside them.

A CSV or an .xlsx can only be written once all columns are known: until then the answers are lines
of JSON in the part of the file, and a stopped run goes on as any other.
"""

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from tidybert.errors import LimitError, UsageError, param
from tidybert.files.rows import count_of
from tidybert.inference.answer_files import AnswerForm
from tidybert.storage.atomic_files import atomic_file, atomic_write_bytes
from tidybert.storage.json_objects import plain_json
from tidybert.storage.own_files import GrowingFile
from tidybert.tasks.answer import LabelledAnswer, TaskAnswer

TABLES: Final = (".csv", ".xlsx")
# What a sheet of Excel holds, by its "Specifications and limits" (support.microsoft.com).
_SHEET_ROWS: Final = 1_048_575
_SHEET_COLUMNS: Final = 16_384
_SHEET_CHARACTERS: Final = 32_767

Rows = Iterator[list[Any]]


@dataclass(frozen=True)
class TableForm(AnswerForm):
    """A row an example, with a header; keys of answers that the input has get ``predicted_``.

    Args:
        top_k: keeps the scores of the likeliest classes alone.
        shown: gives the texts of an example that has no columns.
        delimiter: gives the character between the cells of a CSV, that of the input.
    """

    top_k: int | None = None
    shown: Callable[[Any], Sequence[str]] = lambda example: ()
    delimiter: Callable[[], str] = lambda: ","

    def piece(self, examples: Sequence[Any], answers: Sequence[Any], num_done: int) -> str:
        lines: list[str] = []
        for example, answer in zip(examples, answers, strict=True):
            found = TaskAnswer.of(answer)
            if self.top_k is not None and isinstance(found, LabelledAnswer):
                found = found.likeliest(self.top_k)
            columns = example.columns
            if columns is None:
                columns = dict(zip(("text", "text_pair"), self.shown(example), strict=False))
            given = {name: _cell(value) for name, value in columns.items()}
            self.check(given, num_done + len(lines) + 1)
            row = {name: _cell(value) for name, value in found.row().items()}
            lines.append(json.dumps(plain_json([given, row]), default=str) + "\n")
        return "".join(lines)

    def check(self, row: Mapping[str, Any], number: int) -> None:
        """Raise LimitError for a row that the file could not hold."""

    def make(self, file: GrowingFile, target: Path) -> None:
        file.close()
        given: dict[str, None] = {}
        answered: dict[str, None] = {}
        for columns, answer in _lines(file.path):
            given.update(dict.fromkeys(columns))
            answered.update(dict.fromkeys(answer))
        heads = [f"predicted_{name}" if name in given else name for name in answered]

        def rows() -> Rows:
            yield [*given, *heads]
            for columns, answer in _lines(file.path):
                yield [*map(columns.get, given), *map(answer.get, answered)]

        self.save(rows(), target)

    def save(self, rows: Rows, target: Path) -> None:
        """Write the header and the rows, whole."""
        # Excel takes a CSV for UTF-8 where the mark says so.
        begin, delimiter = "\ufeff", self.delimiter()
        with atomic_file(target) as partial:
            file = GrowingFile(partial, 0, shown=target)
            try:
                for row in rows:
                    text = io.StringIO(newline="")
                    csv.writer(text, delimiter=delimiter).writerow(map(_spelt, row))
                    file.write(f"{begin}{text.getvalue()}".encode())
                    begin = ""
                file.sync()
            finally:
                file.close()


class SheetForm(TableForm):
    """A workbook of Excel with one sheet."""

    def check(self, row: Mapping[str, Any], number: int) -> None:
        advice = f"name an {param('out')} that ends in .csv"
        if number > _SHEET_ROWS or len(row) > _SHEET_COLUMNS:
            raise LimitError(
                f"a sheet of Excel holds {_SHEET_ROWS:,} rows of {_SHEET_COLUMNS:,} cells; {advice}"
            )
        for name, cell in row.items():
            if isinstance(cell, str) and len(cell) > _SHEET_CHARACTERS:
                length = count_of(len(cell), "character")
                raise LimitError(
                    f"example {number}: {name!r} has {length}, and a cell of Excel holds "
                    f"{_SHEET_CHARACTERS:,}; {advice}"
                )

    def save(self, rows: Rows, target: Path) -> None:
        import xlsxwriter

        content = io.BytesIO()
        # Text stays text: no formula, no link, no number is made of it.
        book = xlsxwriter.Workbook(
            content, {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False}
        )
        book.set_properties({"created": datetime(2000, 1, 1)})
        sheet = book.add_worksheet()
        for number, row in enumerate(rows):
            for at, cell in enumerate(row):
                if isinstance(cell, str):
                    sheet.write_string(number, at, cell)
                elif cell is not None:
                    sheet.write(number, at, cell)
        book.close()
        atomic_write_bytes(target, content.getvalue())


def table_form(
    target: Path | None, top_k: int | None, shown: Callable[[Any], Sequence[str]], delimiter: Any
) -> TableForm | None:
    """The form of a file with this suffix; None for one that is no table."""
    if target is None or target.suffix.lower() not in TABLES:
        return None
    kind = SheetForm if target.suffix.lower() == ".xlsx" else TableForm
    if kind is SheetForm and find_spec("xlsxwriter") is None:
        raise UsageError(
            f"{param('out', target)} needs the package XlsxWriter: pip install 'tidybert[sheets]'; "
            "or name a file that ends in .csv"
        )
    name = "table" if top_k is None else f"table, top {top_k}"
    return kind(name, str, top_k=top_k, shown=shown, delimiter=delimiter)


def _lines(path: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    with path.open("rb") as stream:
        for line in stream:
            columns, answer = json.loads(line)
            yield columns, answer


def _cell(value: Any) -> Any:
    """A value as a cell: a text, a number, true, false or nothing."""
    if isinstance(value, str | int | float | None):
        return value
    return json.dumps(plain_json(value), ensure_ascii=False, default=str)


def _spelt(cell: Any) -> Any:
    return str(cell).lower() if isinstance(cell, bool) else cell
