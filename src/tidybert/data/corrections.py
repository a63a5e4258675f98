"""Corrections of labels: a CSV that a check writes, a person fills in, and training reads.

Each row names an example by its row in the file of examples and by its text.  A person writes the
right label into the empty column; an empty cell keeps the label.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tidybert.errors import DataError, param, suggestion
from tidybert.files.reading import ReadOptions, ReadReport
from tidybert.files.records import delimited_rows, guarded
from tidybert.files.rows import Problem
from tidybert.files.text_examples import TextExample, canonical_label, plain_form
from tidybert.files.text_lines import open_bytes

COLUMN: Final = "correction"
_NEEDED: Final = ("row", "text", COLUMN)


@dataclass(frozen=True)
class Corrected:
    """The examples with their corrections: how many were changed, and how many rows were read."""

    examples: list[TextExample]
    num_changed: int
    num_rows: int


def csv_text(rows: Iterable[Mapping[str, object]], columns: Sequence[str]) -> str:
    """A CSV of these columns, safe to open in a spreadsheet: no cell begins a formula.

    Excel takes other letters than ASCII's for UTF-8 by the mark at the beginning alone.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([guarded(_cell(row.get(name))) for name in columns])
    text = file.getvalue()
    return text if text.isascii() else f"\ufeff{text}"


def apply_corrections(path: str, examples: Sequence[TextExample]) -> Corrected:
    """The examples, with the labels that the CSV at ``path`` corrects.

    The CSV has the columns row, text and correction, and text_pair for pairs; where it has a column
    label, this must be the example's present one.  Commas, semicolons or tabs separate cells.
    """
    first: dict[str, int] = {}
    # All examples of a JSON file may be in its one line, so the row alone does not name one.
    of_text: dict[tuple[str, str], list[int]] = {}
    for at, one in enumerate(examples):
        first.setdefault(str(one.row), at)
        of_text.setdefault((str(one.row), _plain(one.text)), []).append(at)
    known = {one.label for one in examples if one.label is not None}
    corrected, seen, num_changed = list(examples), set[int](), 0
    for line, cells in correction_rows(path):
        where = f"{path}:{line}"
        row = plain_form(cells["row"].strip()) or cells["row"].strip()
        if row not in first:
            raise DataError(
                f"{where}: no example is in row {row[:40]!r}: the corrections must come from a "
                f"check of the same {param('train')} file"
            )
        numbers = of_text.get((row, _plain(cells["text"])), [first[row]])
        differing = [_differing(examples[at], cells) for at in numbers]
        if None not in differing:
            name = str(differing[0])
            raise DataError(
                f"{where}: the {name} is {cells.get(name, '')[:40]!r}, but row {row} of the "
                f"examples has {getattr(examples[numbers[0]], name)[:40]!r}: check the file of "
                "examples again, and correct that"
            )
        found = [
            at
            for at, name in zip(numbers, differing, strict=True)
            if name is None and at not in seen
        ]
        if not found:
            raise DataError(f"{where}: row {row} comes a second time; give each row once")
        seen.add(found[0])
        one = examples[found[0]]
        label = canonical_label(cells[COLUMN])
        if label is None:
            continue
        if label not in known and plain_form(label) in known:
            label = str(plain_form(label))
        if label not in known:
            raise DataError(
                f"{where}: no example has the label {label[:40]!r}"
                f"{suggestion(label, sorted(known))}; for a new class, change the file of examples "
                "itself"
            )
        num_changed += label != one.label
        corrected[found[0]] = replace(one, label=label, soft=None)
    return Corrected(corrected, num_changed, len(seen))


def correction_rows(path: str) -> Iterator[tuple[int, dict[str, str]]]:
    """The line and the cells by column of each row."""
    with open_bytes(path) as stream:
        start = stream.peek(4096).decode("utf-8-sig", "replace").splitlines()[:1]
        # Spreadsheets of many countries write semicolons.
        marks = {mark: "".join(start).count(mark) for mark in ",;\t"}
        options = ReadOptions(delimiter=max(marks, key=marks.__getitem__), quoting=True)
        columns: list[str] | None = None
        for row in delimited_rows(stream, ReadReport(path, options=options), "csv"):
            if isinstance(row, Problem):
                raise DataError(f"{path}:{row.row}: {row.message}")
            line, cells = row
            if columns is None:
                columns = [cell.strip() for cell in cells]
                lacking = [name for name in _NEEDED if name not in columns]
                if lacking:
                    raise DataError(
                        f"{path}:{line}: the column {lacking[0]!r} is missing; tidybert check FILE "
                        f"{param('out')} DIR writes corrections.csv with all that are needed"
                    )
                continue
            if len(cells) != len(columns):
                raise DataError(
                    f"{path}:{line}: {len(cells)} cells where the header has {len(columns)}"
                )
            yield line, dict(zip(columns, cells, strict=True))
    if columns is None:
        raise DataError(f"{path}: it is empty; a header and rows are expected")


def _differing(one: TextExample, cells: Mapping[str, str]) -> str | None:
    """The first column in which a row of corrections is not the example's; None: it is its."""
    for name in ("text", "text_pair", "label"):
        value = getattr(one, name)
        if value is None or (name == "label" and name not in cells):
            continue
        cell = _plain(cells.get(name, ""))
        # Spreadsheets write 1 as 1.0, and TRUE.
        if _plain(value) not in (cell, plain_form(cell) if name == "label" else cell):
            return name
    return None


def _plain(text: str) -> str:
    """A text as both a file and a spreadsheet have it."""
    return " ".join(text.split())


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)
