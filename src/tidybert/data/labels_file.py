"""Answers of a person on the disk, before they count: labels.csv, or the corrections of a check.

labels.csv grows by a row an answer; ``files.label_rows`` has its columns, and which rows count.  A
spreadsheet may change it meanwhile: it is read again, and rows follow in its separator and
encoding.  Where entities are marked, the cell of the label is a list of spans in JSON.  Corrections
have a row a suspect, whose empty cell is filled in.
"""

import csv
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Self

import msgspec

from tidybert.data.corrections import COLUMN, correction_rows, csv_text
from tidybert.errors import DataError, param
from tidybert.files.annotations import Span, span_in
from tidybert.files.columns import DRAWN
from tidybert.files.label_rows import (
    COLUMNS,
    LABEL,
    LABELLED,
    PAIR,
    STATUS,
    STATUSES,
    TEXT,
    text_columns,
    text_key,
    wrong_status,
)
from tidybert.files.reading import ReadReport
from tidybert.files.records import CellsRow, delimited_rows, guarded
from tidybert.files.rows import Problem
from tidybert.files.text_examples import canonical_label, list_in, plain_form
from tidybert.files.text_lines import open_bytes
from tidybert.storage.atomic_files import append_text, atomic_write_text
from tidybert.storage.limits import DATA_JSON_BYTES
from tidybert.storage.opening import read_bytes
from tidybert.storage.output_lock import output_lock
from tidybert.storage.own_files import GrowingFile

SEPARATOR = ","
"""Between the labels of a text that may have several."""


@dataclass(frozen=True)
class Answer:
    """A person's answer about a text; ``labels`` is empty unless the status is "labelled".

    ``drawn`` says how the text was picked: "random", "chosen", or "" where the file does not say.
    Where entities are marked, ``entities`` has them in their order, each with its text, and
    ``labels`` their types.
    """

    texts: tuple[str, ...]
    labels: tuple[str, ...]
    status: str
    drawn: str
    row: str = ""
    entities: tuple[Span, ...] = ()

    @property
    def key(self) -> tuple[str, ...]:
        return text_key(self.texts)


class LabelsFile:
    """A file of labels that this process alone appends to: see ``opened``.

    Args:
        by: who labels; "" leaves the column empty.
        is_pair: whether texts are pairs, for a new file.
        multi_label: whether a text may have several labels.
        of_entities: whether texts have entities in place of labels.
    """

    def __init__(
        self, path: Path, *, by: str, is_pair: bool, multi_label: bool, of_entities: bool = False
    ) -> None:
        self.path, self._by, self._is_several = path, by, multi_label
        self._of_entities = of_entities
        self._texts = PAIR if is_pair else TEXT
        self._names: list[str] = [*self._texts, *COLUMNS]
        self._separator, self._encoding = ",", "utf-8"
        #: What reading has found that the user should know.
        self.notes: list[str] = []
        self._seen: tuple[int, int, int] | None = None

    @classmethod
    @contextmanager
    def opened(
        cls, path: Path, *, by: str, is_pair: bool, multi_label: bool, of_entities: bool = False
    ) -> Iterator[Self]:
        """Lock the file until the block ends; raises InUseError while somebody else labels."""
        with output_lock(path):
            kind = {"is_pair": is_pair, "multi_label": multi_label, "of_entities": of_entities}
            found = cls(path, by=by, **kind)
            if not path.exists():
                # Excel reads UTF-8 by this mark alone.
                atomic_write_text(path, "\ufeff" + found._line(found._names))
            yield found

    def has_changed(self) -> bool:
        """Whether another program changed the file (time, size, inode) since our last use."""
        return self._seen != _state(self.path)

    def read(self) -> list[Answer]:
        """All answers, in their order; a row that a kill has cut is taken off the file.

        Raises DataError for a file of other columns, and for rows that cannot be read.
        """
        self.notes, path, seen = [], str(self.path), _state(self.path)
        report = ReadReport(path)
        with open_bytes(path) as stream:
            rows = list(delimited_rows(stream, report, "csv"))
        names = [] if not rows or isinstance(rows[0], Problem) else [*map(str.strip, rows[0][1])]
        texts, needed = text_columns(names), [*self._texts, *COLUMNS]
        if not {*needed} <= {*names}:
            raise DataError(
                f"{path}: expected a file of labels with the columns {', '.join(needed)}; give "
                f"{param('out')} another name"
            )
        self._names, self._separator = names, report.options.separator("csv")
        self._encoding = report.shown.get("encoding", "utf-8").split()[0]
        if self._encoding.startswith("utf-16"):
            raise DataError(f"{path}: it was saved as UTF-16; save it as CSV UTF-8")
        found = []
        for row in rows[1:]:
            line = row.row if isinstance(row, Problem) else row[0]
            if not isinstance(row, Problem) and len(row[1]) == len(names):
                found.append(self._answer(line, dict(zip(names, row[1], strict=True)), texts))
            elif row is rows[-1] and self._take_off(row):
                self.notes.append(f"line {line} was cut off by a kill, and is taken off the file")
                seen = _state(self.path)
            else:
                width = f"{0 if isinstance(row, Problem) else len(row[1])} cells"
                said = row.message if isinstance(row, Problem) else f"{width}, not {len(names)}"
                raise DataError(f"{path}:{line}: {said}; mend that row")
        # A file that cannot be read counts as changed until it can.
        self._seen = seen
        return found

    def add(self, answers: Sequence[Answer]) -> None:
        """Append the rows of answers; they are on the disk when this returns.

        Raises DataError where the file is gone or its encoding lacks a letter, and DiskError.
        """
        if _state(self.path) is None:
            raise DataError(f"{self.path} is gone: put it back, or start tidybert label again")
        at = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        with open_bytes(str(self.path)) as stream:
            stream.seek(-1, os.SEEK_END)
            text = "" if stream.read(1) == b"\n" else "\n"
        for one in answers:
            said = self._cell(one), one.status, one.drawn, one.row, self._by, at
            cells = dict(zip((*self._texts, *COLUMNS), (*one.texts, *said), strict=True))
            text += self._line([guarded(cells.get(name, "")) for name in self._names])
        try:
            append_text(self.path, text, encoding=self._encoding, is_synced=True)
        except UnicodeEncodeError as error:
            raise DataError(
                f"{self.path}: it was saved in {self._encoding}, which lacks "
                f"{text[error.start]!r}: save it as CSV UTF-8"
            ) from None
        self._seen = _state(self.path)

    def _answer(self, line: int, cells: dict[str, str], texts: Sequence[int]) -> Answer:
        said, status = cells[LABEL].strip(), cells[STATUS].strip()
        shown = tuple(cells[self._names[at]] for at in texts)
        entities: tuple[Span, ...] = ()
        if self._of_entities:
            entities = self._entities(line, shown[0], said)
            labels = tuple(one.label for one in entities)
        elif said.startswith("[{"):
            raise DataError(
                f"{self.path}:{line}: the label is a list of entities; name the task tag"
            )
        else:
            parts = said.split(SEPARATOR) if self._is_several else [said]
            labels = tuple(found for each in parts if (found := canonical_label(each)))
        has_label = bool(said if self._of_entities else labels)
        if not has_label and (status not in STATUSES or status == LABELLED):
            raise DataError(f"{self.path}:{line}: {wrong_status(status)}")
        # Whoever fills in a cell of a spreadsheet changes no other.
        status = LABELLED if has_label else status
        return Answer(shown, labels, status, cells[DRAWN].strip(), cells["row"].strip(), entities)

    def _entities(self, line: int, text: str, said: str) -> tuple[Span, ...]:
        marks = list_in(said or "[]")
        try:
            if marks is None:
                raise DataError(
                    f"the label {said[:40]!r} is not a list of entities as JSON; expected such as "
                    '[{"start": 0, "end": 3, "label": "PER"}]'
                )
            return tuple(span_in(text, each, ReadReport()) for each in marks)
        except DataError as error:
            raise DataError(f"{self.path}:{line}: {error.message}") from None

    def _cell(self, one: Answer) -> str:
        if self._of_entities and one.status == LABELLED:
            return json.dumps(
                [msgspec.to_builtins(each) for each in one.entities], ensure_ascii=False
            )
        return SEPARATOR.join(one.labels)

    def _line(self, cells: Sequence[str]) -> str:
        file = io.StringIO()
        csv.writer(file, delimiter=self._separator, lineterminator="\n").writerow(cells)
        return file.getvalue()

    def _take_off(self, row: CellsRow | Problem) -> bool:
        """Cut off the last row, if a kill has cut it, and nothing else is in it.

        A quote that somebody has left open may have many rows in it.
        """
        lines = read_bytes(self.path, DATA_JSON_BYTES).split(b"\n")
        if not isinstance(row, Problem) and not lines[-1]:
            return False
        texts = [each.decode(self._encoding, "replace") for each in lines]
        whole = (f"{each}\n" for each in texts[: len(texts) - (not texts[-1])])
        rows, start, end = csv.reader(whole, delimiter=self._separator), 0, 0
        for _ in rows:
            start, end = end, rows.line_num
        inside = csv.reader(texts[start + 1 :], delimiter=self._separator)
        if any(len(cells) >= len(self._names) for cells in inside):
            return False
        GrowingFile(self.path, sum(len(each) + 1 for each in lines[:start])).close()
        return True


class CorrectionsFile:
    """The corrections of a check, whose empty cells this process alone fills in: see ``opened``.

    An answer is known by its row and its texts; one that is taken back empties the cell again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notes: list[str] = []
        #: The cells of each row by column.
        self.rows: list[dict[str, str]] = []
        self._seen: tuple[int, int, int] | None = None

    @classmethod
    @contextmanager
    def opened(cls, path: Path) -> Iterator[Self]:
        """Lock the file until the block ends; raises InUseError while somebody else fills it."""
        with output_lock(path):
            found = cls(path)
            found.read()
            yield found

    def has_changed(self) -> bool:
        """As that of LabelsFile."""
        return self._seen != _state(self.path)

    def read(self) -> list[Answer]:
        """The rows that are filled in; raises DataError where a column is missing."""
        seen = _state(self.path)
        self.rows = []
        for line, cells in correction_rows(str(self.path)):
            # Spreadsheets write 2 as 2.0.
            row = plain_form(cells["row"].strip()) or cells["row"]
            if not row.isdecimal():
                raise DataError(f"{self.path}:{line}: row is {row[:40]!r}, not a row's number")
            self.rows.append({**cells, "row": row})
        self._seen = seen
        labels = [canonical_label(one[COLUMN]) for one in self.rows]
        return [
            Answer(_texts_of(one), (label,), LABELLED, "chosen", one["row"])
            for one, label in zip(self.rows, labels, strict=True)
            if label is not None
        ]

    def add(self, answers: Sequence[Answer]) -> None:
        """Fill in the cells of answers; they are on the disk when this returns."""
        for answer in answers:
            for one in self.rows:
                if (one["row"], _texts_of(one)) == (answer.row, answer.texts):
                    one[COLUMN] = "".join(answer.labels)
        atomic_write_text(self.path, csv_text(self.rows, list(self.rows[0])))
        self._seen = _state(self.path)


def _texts_of(cells: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(cells[name] for name in ("text", "text_pair") if cells.get(name))


def _state(path: Path) -> tuple[int, int, int] | None:
    """What another writing of a file changes; None where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
