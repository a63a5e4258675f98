"""Bytes on disk to lines, and lines to the rows of delimited text, plain or gzipped.

A line ends at ``\\n`` or ``\\r\\n`` and nowhere else: U+2028, U+0085 and their like are data.  Each
function yields rows in the order of the file, and a `Problem` in place of a row that cannot be
read, so that the caller decides whether one bad row ends the work.  Quoting follows RFC 4180.
"""

import codecs
import csv
import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from tidybert.errors import DataError, param

MAX_LINE_BYTES = 1 << 26
MAX_FIELD_CHARACTERS = 1 << 24
GZIP_MAGIC = b"\x1f\x8b"
NUL_BYTE = f"a NUL byte: this is not plain text, or it is UTF-16 ({param('encoding', 'utf-16')})"

# A row's number (its first line in the file, from 1) and its cells.
CellsRow = tuple[int, list[str]]
# A line's number, its text with the line end, and what is wrong with it.
Line = tuple[int, str, str | None]


@dataclass(frozen=True, slots=True)
class Problem:
    """A row that cannot be read: the 1-based line where it starts, and why."""

    row: int
    message: str


@contextmanager
def open_bytes(path: str) -> Iterator[io.BufferedReader]:
    """Open a file, or standard input for ``-``, unpacking gzip wherever its first bytes say so.

    Raises DataError for a missing file, a folder, and gzip data that are damaged or cut short.
    """
    try:
        with ExitStack() as stack:
            raw = _standard_input() if path == "-" else stack.enter_context(Path(path).open("rb"))
            if path.endswith(".gz") or raw.peek(2)[:2] == GZIP_MAGIC:
                raw = io.BufferedReader(cast(Any, gzip.GzipFile(fileobj=raw)))
            yield raw
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{path}: the gzip data are damaged or cut short ({error}); copy the file again"
        ) from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {os_reason(error)}") from error


def decoded_lines(stream: BinaryIO, encoding: str, path: str) -> Iterator[Line]:
    """Decode a stream line by line; a wrong byte or a NUL spoils its own line only.

    A byte-order mark before the first line is dropped.  A spoilt line comes with replacement
    characters, so that the quotes in it still close what they open.
    """
    encoding = "utf-8" if codecs.lookup(encoding).name in ("utf-8", "utf-8-sig") else encoding
    raw_lines = iter(lambda: stream.readline(MAX_LINE_BYTES + 1), b"")
    if not _keeps_ascii(encoding):
        raw_lines, encoding = _recoded_lines(stream, encoding, path), "utf-8"
    for number, raw in enumerate(raw_lines, start=1):
        if len(raw) > MAX_LINE_BYTES:
            raise DataError(
                f"{path}:{number}: a line longer than {MAX_LINE_BYTES >> 20} MiB; is the "
                f"{param('format')} right?"
            )
        problem = None
        try:
            text = raw.decode(encoding)
        except UnicodeDecodeError as error:
            problem = wrong_byte(raw, error.start, encoding, number)
            text = raw.decode(encoding, "replace")
        if number == 1:
            text = text.removeprefix("\ufeff")
        if problem is None and "\0" in text:
            problem = NUL_BYTE
        yield number, text, problem


def chomp(line: str) -> str:
    """The line without its line end."""
    return line.removesuffix("\n").removesuffix("\r")


def unquoted_rows(lines: Iterator[Line], delimiter: str) -> Iterator[CellsRow | Problem]:
    """Rows of a file in which quotes are data; a blank line is a row without cells."""
    for number, text, problem in lines:
        if problem:
            yield Problem(number, problem)
        else:
            line = chomp(text)
            yield number, line.split(delimiter) if line else []


def quoted_rows(lines: Iterator[Line], delimiter: str) -> Iterator[CellsRow | Problem]:
    """Rows of a file whose cells may be quoted and then hold delimiters, line ends and "" for "."""
    # The limit is the process's, and the standard one (131,072) is less than a long document.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_FIELD_CHARACTERS))
    feed = _Feed(lines)
    reader = csv.reader(feed, delimiter=delimiter, strict=True)
    while True:
        start = feed.number + 1
        feed.problem = None
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield feed.problem or Problem(start, _csv_reason(error, start, feed.number))
            continue
        yield feed.problem or (start, cells)


def _standard_input() -> io.BufferedReader:
    stream = cast(Any, sys.stdin.buffer)
    return cast(io.BufferedReader, stream) if hasattr(stream, "peek") else io.BufferedReader(stream)


class _Feed:
    """Hands lines to csv.reader, remembering the line's number and what was wrong with it."""

    def __init__(self, lines: Iterator[Line]) -> None:
        self.lines = lines
        self.number = 0
        self.problem: Problem | None = None

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        self.number, text, problem = next(self.lines)
        if problem and self.problem is None:
            self.problem = Problem(self.number, problem)
        return text


def _recoded_lines(stream: BinaryIO, encoding: str, path: str) -> Iterator[bytes]:
    """Lines in an encoding that is no superset of ASCII, such as UTF-16, as UTF-8."""
    text = io.TextIOWrapper(stream, encoding=encoding, newline="\n")
    number = 0
    try:
        while line := text.readline(MAX_LINE_BYTES + 1):
            number += 1
            yield line.encode("utf-8")
    except UnicodeError as error:
        raise DataError(
            f"{path}:{number + 1}: this line or one soon after is not {encoding}; give the file's "
            f"encoding with {param('encoding')}"
        ) from error
    finally:
        # The wrapper would otherwise close the stream, which is the caller's.
        with suppress(ValueError):
            text.detach()


def _keeps_ascii(encoding: str) -> bool:
    sample = '\n\r\t,;|"{}09azAZ'
    return sample.encode(encoding) == sample.encode("ascii")


def wrong_byte(line: bytes, at: int, encoding: str, number: int) -> str:
    """Why line ``number`` cannot be decoded, for its byte ``at``, and what to do."""
    if number == 1 and line[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return f"the file begins as UTF-16 does; give {param('encoding', 'utf-16')}"
    advice = (
        f"save the file as UTF-8, or give its encoding, as in {param('encoding', 'latin-1')}"
        if encoding == "utf-8"
        else f"give the file's encoding with {param('encoding')}"
    )
    return f"byte 0x{line[at]:02x} at column {at + 1} is not {encoding}; {advice}"


def _csv_reason(error: csv.Error, first: int, last: int) -> str:
    message = str(error)
    where = f"lines {first} to {last}" if last > first else f"line {first}"
    if "unexpected end of data" in message or "field limit" in message:
        return (
            f"a quote that is opened in this row is never closed, so {where} make no row; close "
            f"it, or give {param('quoting', False)} where quotes are data"
        )
    if "new-line character" in message:
        return "a carriage return outside quotes; end lines with \\n or \\r\\n"
    if "expected after" in message:
        return (
            "text follows a closing quote; double a quote inside quotes, or give "
            f"{param('quoting', False)} where quotes are data"
        )
    return message


def os_reason(error: OSError) -> str:
    """Why a file cannot be opened or read, in plain words."""
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, IsADirectoryError):
        return "it is a folder; name a file in it"
    return error.strerror or str(error)
