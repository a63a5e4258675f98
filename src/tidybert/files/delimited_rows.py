"""Lines of csv and tsv to rows of cells.

A `Problem` comes in place of a row that cannot be read, so that the caller decides whether one bad
row ends the work.  Quoting follows RFC 4180.
"""

import csv
from collections.abc import Iterator
from itertools import islice
from typing import BinaryIO

from tidybert.errors import param
from tidybert.files.raw_rows import Problem
from tidybert.files.read_report import ReadReport
from tidybert.files.text_lines import Line, chomp, decoded_lines
from tidybert.storage.limits import CELL_CHARACTERS

# A row's number (its first line in the file, from 1) and its cells.
CellsRow = tuple[int, list[str]]


def delimited_rows(
    stream: BinaryIO, file_format: str, report: ReadReport
) -> Iterator[CellsRow | Problem]:
    """The rows of csv or tsv; blank lines are passed over, and counted in the report."""
    options = report.options
    lines = decoded_lines(stream, options.codec(), report.path)
    lines = islice(lines, options.skip_rows, None)
    split = _quoted_rows if options.quotes(file_format) else _unquoted_rows
    blank = 0
    for row in split(lines, options.separator(file_format)):
        if isinstance(row, Problem) or row[1]:
            yield row
        else:
            blank += 1
    report.note_blank(blank)


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
