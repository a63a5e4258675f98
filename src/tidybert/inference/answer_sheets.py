"""Answers as a table for a spreadsheet: the columns of the input, and each answer beside them.

A CSV or an .xlsx can only be written once all columns are known: until then the answers are lines
of JSON in the part of the file, and a stopped run goes on as any other.
"""

import codecs
import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any, Final

from tidybert.errors import LimitError, UsageError, param, require_package
from tidybert.files.records import guarded
from tidybert.files.text_files import SUFFIXES
from tidybert.inference.answer_files import AnswerForm
from tidybert.storage.atomic_files import atomic_file, atomic_write_bytes
from tidybert.storage.json_objects import plain_json
from tidybert.storage.opening import open_regular
from tidybert.storage.own_files import GrowingFile
from tidybert.tasks.answer import LabelledAnswer, TaskAnswer

TABLES: Final = (".csv", ".xlsx")
_READ_ALONE: Final = ("tsv", "sheet", "json", "parquet", "arrow")
# What a sheet of Excel holds, by its "Specifications and limits" (support.microsoft.com).
_SHEET_ROWS: Final = 1_048_575
_SHEET_COLUMNS: Final = 16_384
_SHEET_CHARACTERS: Final = 32_767


@dataclass(frozen=True)
class TableForm(AnswerForm):
    """A row an example, with a header; keys of answers that the input has get ``predicted_``.

    Args:
        top_k: keeps the scores of the likeliest classes alone.
        shown: gives the texts of an example that has no columns.
        delimiter: gives the character between the cells of a CSV, that of the input; None for
            a workbook of Excel.
    """

    top_k: int | None = None
    shown: Callable[[Any], Sequence[str]] = lambda example: ()
    delimiter: Callable[[], str] | None = None

    def piece(self, examples: Sequence[Any], answers: Sequence[Any], num_done: int) -> str:
        lines = []
        pairs = zip(examples, answers, strict=True)
        for number, (example, answer) in enumerate(pairs, num_done + 1):
            columns, found = self.cells(example, answer)
            given = {name: _cell(value) for name, value in columns.items()}
            row = {name: _cell(_rounded(value)) for name, value in found.items()}
            if self.delimiter is None:
                _check_cells(given, number)
            lines.append(json.dumps(plain_json([given, row]), default=str) + "\n")
        return "".join(lines)

    def cells(
        self, example: Any, answer: Mapping[str, Any]
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """The columns of the input and those of the answer, of one row."""
        found = TaskAnswer.of(answer)
        if self.top_k is not None and isinstance(found, LabelledAnswer):
            found = found.likeliest(self.top_k)
        columns = example.columns
        if columns is None:
            columns = dict(zip(("text", "text_pair"), self.shown(example), strict=False))
        return columns, found.row()

    def make(self, file: GrowingFile, target: Path) -> None:
        file.close()
        given: dict[str, None] = {}
        answered: dict[str, None] = {}
        for columns, answer in _lines(file.path):
            given |= dict.fromkeys(columns)
            answered |= dict.fromkeys(answer)
        heads = [f"predicted_{name}" if name in given else name for name in answered]
        head: list[Any] = [*given, *heads]
        cells = (
            [*map(columns.get, given), *map(answer.get, answered)]
            for columns, answer in _lines(file.path)
        )
        table_rows = chain([head], cells)
        if self.delimiter is None:
            atomic_write_bytes(target, _workbook(table_rows))
            return
        with atomic_file(target) as partial, closing(GrowingFile(partial, 0, target)) as table:
            # Excel takes a CSV for UTF-8 where the mark says so.
            table.write(codecs.BOM_UTF8)
            for row in table_rows:
                text = io.StringIO(newline="")
                writer = csv.writer(text, delimiter=self.delimiter())
                writer.writerow(map(_spelt, row))
                table.write(text.getvalue().encode())
            table.sync()


def _check_cells(row: Mapping[str, Any], number: int) -> None:
    """Raise LimitError for a row that a sheet of Excel could not hold."""
    advice = f"name an {param('out')} that ends in .csv"
    if number > _SHEET_ROWS or len(row) > _SHEET_COLUMNS:
        raise LimitError(
            f"a sheet of Excel holds {_SHEET_ROWS:,} rows of {_SHEET_COLUMNS:,} cells; {advice}"
        )
    for name, cell in row.items():
        if isinstance(cell, str) and len(cell) > _SHEET_CHARACTERS:
            raise LimitError(
                f"example {number}: {name!r} has {len(cell):,} characters, and a cell of Excel "
                f"holds {_SHEET_CHARACTERS:,}; {advice}"
            )


def _workbook(rows: Iterable[list[Any]]) -> bytes:
    """A workbook of Excel with one sheet; text stays text: no formula, no link is made of it."""
    import xlsxwriter

    content = io.BytesIO()
    book = xlsxwriter.Workbook(content, {"in_memory": True})
    book.set_properties({"created": datetime(2000, 1, 1)})
    sheet = book.add_worksheet()
    for number, row in enumerate(rows):
        for at, cell in enumerate(row):
            write = sheet.write_string if isinstance(cell, str) else sheet.write
            write(number, at, cell)
    book.close()
    return content.getvalue()


def table_form(
    target: Path | None, kind: type[TableForm] = TableForm, **how: Any
) -> TableForm | None:
    """The form of a file with this suffix, with the arguments of its kind; None for JSON lines.

    Raises UsageError for the suffix of a form that tidybert reads and does not write.
    """
    suffix = target.suffix.lower() if target is not None else ""
    if suffix not in TABLES and SUFFIXES.get(suffix) in _READ_ALONE:
        raise UsageError(
            f"{param('out', target)}: {suffix} can be read, but answers are written as JSON lines "
            f"(.jsonl) or as a table ({', '.join(TABLES)})"
        )
    if target is None or suffix not in TABLES:
        return None
    if suffix == ".xlsx":
        require_package("xlsxwriter")
        how["delimiter"] = None
    return kind(f"table, top {how.get('top_k')}", str, **how)


def _lines(path: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    with open_regular(path) as stream:
        yield from map(json.loads, stream)


def _cell(value: Any) -> Any:
    """A value as a cell: a text, a number, true, false or nothing."""
    if isinstance(value, str | int | float | None):
        return value
    return json.dumps(plain_json(value), ensure_ascii=False, default=str)


def _rounded(value: Any) -> Any:
    """A value of an answer with scores of four digits after the point, which a person compares."""
    match value:
        case float():
            return round(value, 4)
        case dict():
            return {name: _rounded(each) for name, each in value.items()}
        case list() | tuple():
            return [_rounded(each) for each in value]
    return value


def _spelt(cell: Any) -> Any:
    if isinstance(cell, str):
        return guarded(cell)
    return str(cell).lower() if isinstance(cell, bool) else cell
