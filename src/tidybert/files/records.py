"""Rows that are objects, of JSON lines or of one JSON text, and rows of cells, of csv and tsv.

Follows RFC 8259 as Python's json reads it, and RFC 4180.
"""

import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from operator import itemgetter, ne
from typing import Any, BinaryIO, Final

from tidybert.errors import DataError, LimitError, param
from tidybert.files.arrow_files import noted_classes, with_names
from tidybert.files.reading import ROLES, ReadOptions, ReadReport
from tidybert.files.rows import (
    Problem,
    Record,
    count_of,
    feature_names,
    finite_number,
    json_type,
)
from tidybert.files.text_lines import (
    NUL_BYTE,
    Line,
    chomp,
    decoded_lines,
    shown_encoding,
    utf16_mark,
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

    def here(self) -> int:
        """The line of the next value."""
        self.line += self.text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self.line

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
            self.here()
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


# The key of the list of rows, where an object holds all.
_ROWS: Final = ("data", "examples", "rows", "records", "items", "instances")


def json_records(stream: BinaryIO, report: ReadReport) -> Iterator[Record | Problem]:
    """The objects of a JSON file or of JSON lines, as its first bytes or else its format say."""
    are_lines = _are_lines(stream, report)
    if are_lines != (report.format == "jsonl"):
        report.shown["json"] = "a value a line" if are_lines else "values over lines"
    if are_lines:
        codec, guessed = report.options.codec(), report.guessed_encoding
        rows = line_records(decoded_lines(stream, codec, report.path, guessed), report)
        for row in islice(rows, 1):
            # A row of many may have a list of objects too, or an object of numbers.
            is_table = not isinstance(row, Problem) and _is_table(row[1])
            others = list(islice(rows, 1)) if is_table else []
            if is_table and not others:
                yield from _table(row[1], report)  # type: ignore[index]
            else:
                yield from (row, *others)
        yield from rows
        return
    # The file is held in memory.
    with json_cursor(stream, report) as cursor:
        yield from _entries(cursor, report)
        while cursor.peek() == "{":
            yield _record(cursor.here(), cursor.value())
        cursor.end()


def _are_lines(stream: BinaryIO, report: ReadReport) -> bool:
    """Whether a JSON file holds a value a line; what the first bytes leave open its format says."""
    by_suffix = report.format == "jsonl"
    if not isinstance(stream, io.BufferedReader):
        return by_suffix
    head = stream.peek(1).decode(utf16_mark(stream) or report.options.codec(), "ignore")
    first, _, others = head.lstrip("\ufeff \t\r\n").partition("\n")
    try:
        json.loads(first)
    except (ValueError, RecursionError):
        return by_suffix and first[:1] != "[" and not (first.strip() == "{" and others.strip())
    return others.lstrip()[:1] == first[:1] or (by_suffix and first[:1] != "[")


def _entries(cursor: JsonCursor, report: ReadReport) -> Iterator[Record | Problem]:
    """The entries of an array, or of an object by number, each with its line; rows of a table."""
    is_first = True
    entries = cursor.entries()
    for key in entries:
        value = cursor.value()
        if is_first and key is None and isinstance(value, list) and not _is_spacy(value):
            raise DataError(
                f"{report.path}: an array of arrays; expected an array of objects, whose keys are "
                "the columns' names: save it as objects, or as CSV"
            )
        is_row = isinstance(value, dict) and not _is_column(value) and key != "schema"
        if is_first and key is not None and not is_row:
            yield from _table({key: value, **{str(n): cursor.value() for n in entries}}, report)
            return
        is_first = False
        yield _record(cursor.line, value)


def _is_column(value: Any) -> bool:
    """Whether a value is a column of pandas' to_json(): an object of values by number."""
    return isinstance(value, dict) and list(value) == [str(at) for at in range(len(value))] != []


def _is_table(value: dict[str, Any]) -> bool:
    """Whether the object of a line holds rows itself, so that it is a file in one line."""
    rows: list[Any] = next((value[name] for name in _ROWS if type(value.get(name)) is list), [])
    is_list = bool(rows) and isinstance(rows[0], dict) and "paragraphs" not in rows[0]
    is_split = bool(rows) and isinstance(rows[0], list) and "columns" in value
    are_columns = bool(value) and all(map(_is_column, value.values()))
    return (is_list or is_split or are_columns) and not isinstance(value.get("text"), str)


def _table(table: dict[str, Any], report: ReadReport) -> Iterator[Record | Problem]:
    """The rows that an object has in a list or in columns, or itself as one; counted from 1."""
    found: list[Any] = next((table[name] for name in _ROWS if type(table.get(name)) is list), [])
    names, columns = table.get("columns"), list(table.values())
    rows: list[Any] = [table]
    if isinstance(names, list) and found and isinstance(found[0], list):
        # What pandas writes with orient="split".
        rows = [dict(zip(map(str, names), cells, strict=True)) for cells in found]
    elif found and isinstance(found[0], dict):
        rows = _served_rows(found, table.get("features"), report)
    elif all(isinstance(each, list) for each in columns):
        if len(set(map(len, columns))) > 1:
            shown = ", ".join(f"{name!r:.40} {len(table[name]):,}" for name in islice(table, 5))
            raise DataError(
                f"{report.path}: lists of different lengths: {shown}; expected columns of one "
                'length, or objects: where texts stand by class, give {"text": …, "label": …} each'
            )
        rows = [dict(zip(table, cells, strict=True)) for cells in zip(*columns, strict=True)]
    elif _is_column(columns[0]):
        for name, column in table.items():
            if not isinstance(column, dict) or column.keys() != columns[0].keys():
                raise DataError(
                    f"{report.path}: {next(iter(table))!r:.40} and {name!r:.40} are no columns of "
                    'equal rows; in pandas give to_json(orient="records")'
                )
        report.notes.append("columns first, as pandas' to_json() writes; rows are counted from 1")
        rows = [{name: table[name][at] for name in table} for at in columns[0]]
    yield from (
        row if isinstance(row, Problem) else _record(number, row)
        for number, row in enumerate(rows, start=1)
    )


def _served_rows(rows: list[Any], features: Any, report: ReadReport) -> list[Any]:
    """Rows; those of the server of datasets without what is around them, and with names."""
    by_name = {one["name"]: one["type"] for one in features or () if {"name", "type"} <= one.keys()}
    classes = noted_classes(feature_names(by_name), report)
    found: list[Any] = []
    for number, one in enumerate(rows, start=1):
        is_served = isinstance(one, dict) and isinstance(one.get("row"), dict) and "row_idx" in one
        if is_served and one.get("truncated_cells"):
            found.append(Problem(number, f"cells are cut short: {one['truncated_cells']!s:.80}"))
        else:
            found.append(with_names(one["row"], classes) if is_served else one)
    return found


def _is_spacy(value: Any) -> bool:
    """Whether a value is spaCy's pair of a text and its annotations."""
    return isinstance(value, list) and len(value) == 2 and isinstance(value[1], dict)


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
    if _is_spacy(value):
        value = {"text": value[0], **value[1]}
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


_FIRST_CHARACTER: Final = itemgetter(slice(1))


def delimited_rows(
    stream: BinaryIO, report: ReadReport, file_format: str
) -> Iterator[CellsRow | Problem]:
    """The rows of csv or tsv; blank lines are passed over, and counted in the report."""
    options = report.options
    lines = decoded_lines(stream, options.codec(), report.path, report.guessed_encoding)
    lines = _with_delimiter(islice(lines, options.skip_rows, None), file_format, report)
    blank, num_guards, is_csv = 0, 0, file_format == "csv"
    # Rows of separators alone say nothing where no other row follows.
    empty: list[CellsRow | Problem] = []
    for row in split_rows(lines, file_format, report.options, report.escape):
        if not isinstance(row, Problem):
            number, cells = row
            if not any(cells) and len(cells) != 1:
                empty += [row] if cells else []
                blank += not cells
                continue
            if is_csv and "'" in map(_FIRST_CHARACTER, cells):
                plain = list(map(unguarded, cells))
                num_guards += sum(map(ne, plain, cells))
                row = number, plain
        if empty:
            yield from empty
            empty.clear()
        yield row
    report.note_blank(blank)
    if empty:
        report.notes.append(f"{count_of(len(empty), 'empty row')} at the end passed over")
    if num_guards:
        report.notes.append(
            f"{count_of(num_guards, 'cell')} read without the ' that keeps a spreadsheet from "
            "running it as a formula"
        )


def split_rows(
    lines: Iterator[Line], file_format: str, options: ReadOptions, escape: str | None = None
) -> Iterator[CellsRow | Problem]:
    """The cells of each row; a blank line is a row without cells.

    ``escape`` is what stands before a quote in quotes, where it is not another quote.
    """
    delimiter = options.separator(file_format)
    if options.quotes(file_format):
        return _quoted_rows(lines, delimiter, escape)
    return _unquoted_rows(lines, delimiter)


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
    if any('\\"' in text for _, text, _ in head):
        plain, escaped = (_widths(head, file_format, report.options, one) for one in (None, "\\"))
        if len(set(escaped)) == 1 < len(set(plain)):
            report.escape, report.shown["escape"] = "\\", '\\" for a quote'
    return chain(head, lines)


def _widths(
    head: Sequence[Line], file_format: str, options: ReadOptions, escape: str | None = None
) -> list[int]:
    """How many cells each row of the first lines has, 0 where it cannot be read."""
    size = sum(len(text) for _, text, _ in head)
    # A wrong byte says nothing of the cells.
    lines: Iterator[Line] = ((number, text, None) for number, text, _ in head)
    rows = [
        0 if isinstance(row, Problem) else len(row[1])
        for row in split_rows(lines, file_format, options, escape)
        if isinstance(row, Problem) or row[1]
    ]
    # The last row may go on after these lines.
    return rows[:-1] if len(head) >= _SNIFFED_LINES or size > _SNIFFED_CHARACTERS else rows


def _shown_delimiter(head: Sequence[Line], file_format: str, options: ReadOptions) -> str | None:
    def widths(delimiter: str) -> list[int]:
        return _widths(head, file_format, replace(options, delimiter=delimiter))

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
    """Rows of cells as objects, whose keys the first row names, or the columns' numbers are.

    No message shows a cell: the first row may be data.
    """
    names: list[str] = []
    for row in rows:
        if isinstance(row, Problem):
            if not names:
                raise DataError(f"{report.path}:{row.row}: {row.message}")
            yield row
            continue
        number, cells = row
        if not names:
            report.header = report.options.header is not False
            names = [cell.strip() if report.header else "" for cell in cells]
            if names.count("") > 1 or not report.header:
                names = [name or str(at) for at, name in enumerate(names)]
            if len({*names}) < len(names):
                second = next(at for at, name in enumerate(names) if name in names[:at])
                raise DataError(
                    f"{report.path}:{number}: columns {names.index(names[second])} and {second}, "
                    "counted from 0, have one name; rename one"
                )
            if report.header:
                continue
        if len(cells) == len(names):
            yield number, dict(zip(names, cells, strict=True))
        else:
            first = "header" if report.header else "first row"
            what = f"{count_of(len(cells), 'column')} where the {first} has {len(names)}"
            yield Problem(number, what)


def _unquoted_rows(lines: Iterator[Line], delimiter: str) -> Iterator[CellsRow | Problem]:
    """Rows of a file in which quotes are data; a blank line is a row without cells."""
    for number, text, problem in lines:
        if problem:
            yield Problem(number, problem)
        else:
            line = chomp(text)
            yield number, line.split(delimiter) if line else []


def _quoted_rows(
    lines: Iterator[Line], delimiter: str, escape: str | None = None
) -> Iterator[CellsRow | Problem]:
    """Rows of a file whose cells may be quoted and then hold delimiters, line ends and "" for "."""
    # The limit is the process's, and the standard one (131,072) is less than a long document.
    csv.field_size_limit(max(csv.field_size_limit(), CELL_CHARACTERS.value))
    feed = _Feed(lines, escape)
    reader = csv.reader(
        feed, delimiter=delimiter, escapechar=escape, doublequote=not escape, strict=True
    )
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

    def __init__(self, lines: Iterator[Line], escape: str | None) -> None:
        self.lines, self.escape = lines, escape
        self.start = self.number = 0
        self.problem: Problem | None = None

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        self.number, text, problem = next(self.lines)
        self.start = self.start or self.number
        if self.escape:
            # MySQL's null is no escape.
            text = text.replace("\\N", "\\\\N")
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
