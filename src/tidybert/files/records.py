"""Rows that are objects, of JSON lines or of one JSON text, and rows of cells, of csv and tsv.

Follows RFC 8259 as Python's json reads it, and RFC 4180.
"""

import csv
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from operator import ne
from typing import Any, BinaryIO, Final

from tidybert.errors import DataError, LimitError, param
from tidybert.files.reading import ROLES, ReadOptions, ReadReport
from tidybert.files.rows import Problem, Record, count_of, finite_number, json_type
from tidybert.files.text_lines import (
    NUL_BYTE,
    Line,
    chomp,
    decoded_lines,
    shown_encoding,
    wrong_byte,
)
from tidybert.storage.limits import CELL_CHARACTERS, DATA_JSON_BYTES

# JSON text walked entry by entry, so that a message about one can name its line.
#
# Follows RFC 8259 as Python's json reads it.

_PART_BYTES: Final = 2**20
TOO_DEEP: Final = "too many levels of nesting"
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_CLOSERS: Final = {"[": "]", "{": "}"}


class JsonCursor:
    """A place in a JSON text that moves on as values are read or walked into.

    ``line`` is the 1-based line of the entry that was met last.  Every method raises
    json.JSONDecodeError where the text is not JSON.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.line = 1
        self._decode = json.JSONDecoder().raw_decode
        self._at = 0
        self._counted = 0
        self._skip()

    def peek(self) -> str:
        """The character that the next value begins with, or nothing at the end."""
        return self.text[self._at : self._at + 1]

    def value(self) -> Any:
        """Read the next value whole."""
        value, self._at = self._decode(self.text, self._at)
        self._skip()
        return value

    def entries(self) -> Iterator[str | None]:
        """Walk into the next value, an array or an object, and stop before each of its values.

        Yields the key in an object, None in an array; the caller reads the value, or walks into it
        to its end, before asking for the next.
        """
        opener = self.peek()
        closer = _CLOSERS.get(opener)
        if closer is None:
            raise self._error("an array or an object of objects is expected")
        self._step()
        if self.peek() == closer:
            self._step()
            return
        while True:
            self.line += self.text.count("\n", self._counted, self._at)
            self._counted = self._at
            yield self._key() if opener == "{" else None
            if self.peek() == closer:
                self._step()
                return
            if self.peek() != ",":
                raise self._error(f"a comma or {closer} is expected")
            self._step()

    def end(self) -> None:
        """Make sure that nothing follows."""
        if self._at < len(self.text):
            raise self._error("more text after the end")

    def _key(self) -> str:
        key = self.value()
        if not isinstance(key, str) or self.peek() != ":":
            raise self._error('"name": is expected')
        self._step()
        return key

    def _step(self) -> None:
        self._at += 1
        self._skip()

    def _skip(self) -> None:
        found = _SPACE.match(self.text, self._at)
        assert found is not None
        self._at = found.end()

    def _error(self, message: str) -> json.JSONDecodeError:
        return json.JSONDecodeError(message, self.text, self._at)


@contextmanager
def json_cursor(stream: BinaryIO, report: ReadReport) -> Iterator[JsonCursor]:
    """A cursor at the beginning of a stream's text, which is held in memory."""
    path, encoding, guessed = report.path, report.options.codec(), report.guessed_encoding
    # One read of so many bytes would take room for all of them.
    parts = iter(lambda: stream.read(_PART_BYTES), b"")
    raw = b"".join(islice(parts, DATA_JSON_BYTES.value // _PART_BYTES + 1))
    if len(raw) > DATA_JSON_BYTES.value:
        error = DATA_JSON_BYTES.error(f"over {len(raw) - 1:,}", path)
        raise LimitError(f"{error.message}; save one object a line ({param('format', 'jsonl')})")
    if guessed is not None:
        encoding = shown_encoding(raw, encoding, path, guessed)
    try:
        text = raw.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        number = raw.count(b"\n", 0, error.start) + 1
        column = error.start - (raw.rfind(b"\n", 0, error.start) + 1)
        # The first two bytes of a file show UTF-16.
        line = raw[error.start - column : error.start + 2]
        raise DataError(f"{path}:{number}: {wrong_byte(line, column, encoding, number)}") from error
    del raw
    if "\0" in text:
        number = text.count("\n", 0, text.index("\0")) + 1
        raise DataError(f"{path}:{number}: {NUL_BYTE}")
    try:
        yield JsonCursor(text)
    except json.JSONDecodeError as error:
        raise DataError(
            f"{path}:{error.lineno}: not JSON: {error.msg} at column {error.colno}; for one object "
            f"a line give {param('format', 'jsonl')}"
        ) from error
    except DataError:
        raise
    except RecursionError as error:
        raise DataError(f"{path}: JSON that cannot be read: {TOO_DEEP}") from error
    except ValueError as error:
        raise DataError(f"{path}: JSON that cannot be read: {error}") from error


@dataclass(frozen=True, slots=True)
class Nested:
    """A value and its line; the list of an object that was looked for apart, each value of it such.

    ``items`` is None where there is no such list.
    """

    row: int
    value: Any
    items: "list[Nested] | None" = None


def nested(cursor: JsonCursor, *lists: str) -> Nested:
    """The next value, of an object with the list of the first name apart, and so in its values."""
    row, value, items = cursor.line, {}, None
    if not lists or cursor.peek() != "{":
        return Nested(row, cursor.value())
    for key in cursor.entries():
        if key == lists[0] and cursor.peek() == "[":
            items = [nested(cursor, *lists[1:]) for _ in cursor.entries()]
        else:
            value[key] = cursor.value()
    return Nested(row, value, items)


def json_records(stream: BinaryIO, report: ReadReport) -> Iterator[Record | Problem]:
    """The objects of a JSON file or of JSON lines, as the report's format says."""
    if report.format == "jsonl":
        codec, guessed = report.options.codec(), report.guessed_encoding
        yield from line_records(decoded_lines(stream, codec, report.path, guessed), report)
        return
    # The file is held in memory.
    with json_cursor(stream, report) as cursor:
        is_first = True
        entries = cursor.entries()
        for key in entries:
            value = cursor.value()
            if is_first and isinstance(value, list):
                raise DataError(f"{report.path}: {_lists(key)}")
            if is_first and key is not None and _is_column(value):
                yield from _columns_first(cursor, entries, key, value, report)
                break
            is_first = False
            yield _record(cursor.line, value)
        cursor.end()


def _is_column(value: Any) -> bool:
    """Whether a value is a column of pandas' to_json(): an object of values by number."""
    return isinstance(value, dict) and list(value) == [str(at) for at in range(len(value))] != []


def _columns_first(
    cursor: JsonCursor, entries: Iterator[str | None], key: str, first: Any, report: ReadReport
) -> Iterator[Record | Problem]:
    """The rows of what pandas' to_json() writes without an argument."""
    columns = {key: first} | {str(name): cursor.value() for name in entries}
    for name, column in columns.items():
        if not isinstance(column, dict) or column.keys() != first.keys():
            raise DataError(
                f"{report.path}: {key!r:.40} and {name!r:.40} are no columns of equal rows; in "
                'pandas give to_json(orient="records")'
            )
    report.notes.append("columns first, as pandas' to_json() writes; rows are counted from 1")
    for number, at in enumerate(first, start=1):
        yield number, {name: column[at] for name, column in columns.items()}


def _lists(key: str | None) -> str:
    """What to do with a JSON file of lists, whose first one has this key."""
    if key is None:
        return (
            "an array of arrays; expected an array of objects, whose keys are the columns' names: "
            "save it as objects, or as CSV"
        )
    return (
        f"an object of lists, the first one {key!r:.40}; expected an object for each row: save "
        "each list as a file of its own"
    )


def line_records(
    lines: Iterator[Line], report: ReadReport | None = None
) -> Iterator[Record | Problem]:
    """The object of each line; blank lines are passed over, and counted in the report."""
    blank = 0
    for number, text, problem in lines:
        if problem:
            yield Problem(number, problem)
        elif not text.strip(" \t\r\n"):
            blank += 1
        else:
            try:
                value = json.loads(text)
            except json.JSONDecodeError as error:
                yield Problem(number, f"not JSON: {error.msg} at column {error.colno}")
            except RecursionError:
                yield Problem(number, f"JSON that cannot be read: {TOO_DEEP}")
            except ValueError as error:
                yield Problem(number, f"JSON that cannot be read: {error}")
            else:
                yield _record(number, value)
    if report is not None:
        report.note_blank(blank)


def _record(number: int, value: Any) -> Record | Problem:
    if isinstance(value, dict):
        return number, value
    return Problem(number, f"{json_type(value)} where an object is expected")


# Lines of csv and tsv to rows of cells.
#
# A `Problem` comes in place of a row that cannot be read, so that the caller decides whether one
# bad row ends the work.  Quoting follows RFC 4180.

# A row's number (its first line in the file, from 1) and its cells.
CellsRow = tuple[int, list[str]]


# What a spreadsheet runs as a formula, after any number of the guards that show it as text.
_LIVE: Final = re.compile(r"'*[=+\-@\t\r]")


def guarded(text: str) -> str:
    """A cell of a CSV to write, which no spreadsheet runs; a number stays as it is.

    >>> guarded("=1+1"), guarded("-0.5"), guarded("'@SUM(1)")
    ("'=1+1", '-0.5', "''@SUM(1)")
    """
    return f"'{text}" if _LIVE.match(text) and finite_number(text) is None else text


def unguarded(cell: str) -> str:
    """The text that ``guarded`` made a cell of."""
    return cell[1:] if cell[:1] == "'" and _LIVE.match(cell) else cell


def delimited_rows(
    stream: BinaryIO, report: ReadReport, file_format: str
) -> Iterator[CellsRow | Problem]:
    """The rows of csv or tsv; blank lines are passed over, and counted in the report."""
    options = report.options
    lines = decoded_lines(stream, options.codec(), report.path, report.guessed_encoding)
    lines = _with_delimiter(islice(lines, options.skip_rows, None), file_format, report)
    blank = num_guards = 0
    for row in split_rows(lines, file_format, report.options):
        if isinstance(row, Problem):
            yield row
        elif row[1]:
            number, cells = row
            if file_format == "csv" and any(cell[:1] == "'" for cell in cells):
                plain = list(map(unguarded, cells))
                num_guards += sum(map(ne, plain, cells))
                cells = plain
            yield number, cells
        else:
            blank += 1
    report.note_blank(blank)
    if num_guards:
        report.notes.append(
            f"{count_of(num_guards, 'cell')} read without the ' that keeps a spreadsheet from "
            "running it as a formula"
        )


def split_rows(
    lines: Iterator[Line], file_format: str, options: ReadOptions
) -> Iterator[CellsRow | Problem]:
    """The cells of each row; a blank line is a row without cells."""
    split = _quoted_rows if options.quotes(file_format) else _unquoted_rows
    return split(lines, options.separator(file_format))


_SNIFFED_LINES: Final = 200
_SNIFFED_CHARACTERS: Final = 2**20
_DELIMITERS: Final = {",": "','", ";": "';'", "\t": "tabs", "|": "'|'"}
_STATED: Final = re.compile(r'"?sep=([^"])"?[\r\n]*')


def _with_delimiter(lines: Iterator[Line], file_format: str, report: ReadReport) -> Iterator[Line]:
    """The lines, once the report's options have the delimiter that the file states or shows.

    Excel states it in a first line, sep=;.  Shown is the one under which each row has as many cells
    as the first, two at least, while under the usual one hardly any has.
    """
    options, found = report.options, None
    head: list[Line] = []
    # A pipe may wait for an answer to its first line.
    for line in islice(lines, 1 if report.is_pipe else _SNIFFED_LINES):
        head.append(line)
        if sum(len(text) for _, text, _ in head) > _SNIFFED_CHARACTERS:
            break
    if head and (stated := _STATED.fullmatch(head[0][1])):
        head, found = head[1:], stated[1]
    elif not report.is_pipe and options.delimiter is None:
        found = _shown_delimiter(head, file_format, options)
    if found is not None and options.delimiter is None:
        report.options = replace(options, delimiter=found)
        if found != options.separator(file_format):
            report.shown["delimiter"] = _DELIMITERS.get(found, repr(found))
    if options.quoting is None and "utf-16" in report.shown.get("encoding", ""):
        # Excel encloses cells with quotes between tabs too, where others hardly do.
        report.options = replace(report.options, quoting=True)
    return chain(head, lines)


def _shown_delimiter(head: Sequence[Line], file_format: str, options: ReadOptions) -> str | None:
    size = sum(len(text) for _, text, _ in head)
    # A wrong byte says nothing of the delimiter.
    head = [(number, text, None) for number, text, _ in head]

    def widths(delimiter: str) -> list[int]:
        given = replace(options, delimiter=delimiter)
        rows = [
            0 if isinstance(row, Problem) else len(row[1])
            for row in split_rows(iter(head), file_format, given)
            if isinstance(row, Problem) or row[1]
        ]
        # The last row may go on after these lines.
        return rows[:-1] if len(head) >= _SNIFFED_LINES or size > _SNIFFED_CHARACTERS else rows

    usual, *rows = widths(options.separator(file_format)) or [0]
    numbers = [getattr(options, role) for role in ROLES]
    asked = [int(one) for one in numbers if str(one).isdecimal()]
    fits = sum(width == usual for width in rows)
    if (asked and max(asked) < usual) or (usual > 1 and 10 * fits >= max(len(rows), 1)):
        return None
    shown = [
        each
        for each in _DELIMITERS
        if len(found := widths(each)) > 1 and found[0] > 1 and len(set(found)) == 1
    ]
    return shown[0] if len(shown) == 1 else None


def header_records(
    rows: Iterator[CellsRow | Problem], report: ReadReport
) -> Iterator[Record | Problem]:
    """Rows of cells as objects, whose keys the first row names."""
    names: list[str] = []
    for row in rows:
        if isinstance(row, Problem):
            if not names:
                raise DataError(f"{report.path}:{row.row}: {row.message}")
            yield row
        elif not names:
            names = [cell.strip() for cell in row[1]]
            if repeated := [name for name in names if name and names.count(name) > 1]:
                raise DataError(
                    f"{report.path}:{row[0]}: several columns are named {repeated[0]!r}"
                )
            report.header = True
        elif len(row[1]) != len(names):
            what = f"{count_of(len(row[1]), 'column')} where the header has {len(names)}"
            yield Problem(row[0], what)
        else:
            yield row[0], dict(zip(names, row[1], strict=True))


def _unquoted_rows(lines: Iterator[Line], delimiter: str) -> Iterator[CellsRow | Problem]:
    """Rows of a file in which quotes are data; a blank line is a row without cells."""
    for number, text, problem in lines:
        if problem:
            yield Problem(number, problem)
        else:
            line = chomp(text)
            yield number, line.split(delimiter) if line else []


def _quoted_rows(lines: Iterator[Line], delimiter: str) -> Iterator[CellsRow | Problem]:
    """Rows of a file whose cells may be quoted and then hold delimiters, line ends and "" for "."""
    # The limit is the process's, and the standard one (131,072) is less than a long document.
    csv.field_size_limit(max(csv.field_size_limit(), CELL_CHARACTERS.value))
    feed = _Feed(lines)
    reader = csv.reader(feed, delimiter=delimiter, strict=True)
    while True:
        feed.start, feed.problem = 0, None
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield feed.problem or Problem(feed.start, _csv_reason(error, feed.start, feed.number))
            continue
        yield feed.problem or (feed.start, cells)


class _Feed:
    """Hands lines to csv.reader, remembering where a row starts and what was wrong with it."""

    def __init__(self, lines: Iterator[Line]) -> None:
        self.lines = lines
        self.start = self.number = 0
        self.problem: Problem | None = None

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        self.number, text, problem = next(self.lines)
        self.start = self.start or self.number
        if problem and self.problem is None:
            self.problem = Problem(self.number, problem)
        return text


def _csv_reason(error: csv.Error, first: int, last: int) -> str:
    message = str(error)
    where = f"lines {first}-{last}" if last > first else f"line {first}"
    if "unexpected end of data" in message or "field limit" in message:
        # A quote that is never closed also makes a cell of the rest of the file.
        found = "a quote is never closed"
        if "field limit" in message:
            found = f"a cell has over {CELL_CHARACTERS.value:,} characters, or {found}"
        return (
            f"{where} cannot be parsed: {found}; close it, or give {param('quoting', False)} where "
            "quotes are data"
        )
    if "new-line character" in message:
        return "a carriage return outside quotes; end lines with \\n or \\r\\n"
    if "expected after" in message:
        return (
            "text follows a closing quote; double a quote inside quotes, or give "
            f"{param('quoting', False)} where quotes are data"
        )
    return message
