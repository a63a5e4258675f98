"""Rows that are objects: JSON lines, one JSON array or object of objects, and Parquet.

Follows RFC 8259 as Python's json reads it, and the Parquet files that pyarrow reads.
"""

import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

from tidybert.errors import DataError
from tidybert.files.json_entries import TOO_DEEP, json_cursor
from tidybert.files.raw_rows import Problem, Record
from tidybert.files.read_options import ReadOptions
from tidybert.files.read_report import ReadReport
from tidybert.files.text_lines import Line, check_unpacked, decoded_lines
from tidybert.files.wording import json_type
from tidybert.storage.opening import open_regular, os_reason

PARQUET_BATCH = 1024

Opener = Callable[[], io.BufferedReader]
"""Opens a file that is not on this machine under its name."""


def json_records(
    stream: BinaryIO, options: ReadOptions, report: ReadReport
) -> Iterator[Record | Problem]:
    """The objects of a JSON file or of JSON lines, as the report's format says."""
    if report.format == "jsonl":
        yield from line_records(decoded_lines(stream, options.codec(), report.path), report)
        return
    # The file is held in memory.
    with json_cursor(stream, options.codec(), report.path) as cursor:
        is_first = True
        for key in cursor.entries():
            value = cursor.value()
            if is_first and isinstance(value, list):
                raise DataError(f"{report.path}: {_lists(key)}")
            is_first = False
            yield _record(cursor.line, value)
        cursor.end()


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


def parquet_names(path: str, opened: Opener | None = None) -> list[str]:
    """The names of a Parquet file's columns; DataError for another file."""
    with _parquet(path, opened) as file:
        return list(file.schema_arrow.names)


def parquet_rows(
    path: str, columns: Sequence[str], opened: Opener | None = None
) -> Iterator[Record]:
    """Rows of a Parquet file as objects of the named columns, numbered from 1."""
    number = 0
    with _parquet(path, opened) as file:
        for batch in file.iter_batches(batch_size=PARQUET_BATCH, columns=list(columns)):
            for value in batch.to_pylist():
                number += 1
                yield number, value


@contextmanager
def _parquet(path: str, opened: Opener | None) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with opened() if opened else open_regular(path) as stream, pq.ParquetFile(stream) as file:
            groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
            size = sum(group.total_byte_size for group in groups)
            check_unpacked(size, stream.seek(0, io.SEEK_END), path)
            yield file
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not a Parquet file that can be read: {error}") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {os_reason(error)}") from error
