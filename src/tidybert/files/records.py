"""Rows that are objects: JSON lines, one JSON array or object of objects, and Parquet.

Follows RFC 8259 as Python's json reads it, and the Parquet files that pyarrow reads.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from tidybert.errors import DataError, param
from tidybert.files.formats import Line, Problem, os_reason
from tidybert.files.json_entries import json_cursor

PARQUET_BATCH = 1024
BLANK = object()  # what a blank line holds, where None would be a JSON null

# A row's number (its line, or its place in a Parquet file, from 1) and its value.
ValueRow = tuple[int, object]


def json_line_rows(lines: Iterator[Line]) -> Iterator[ValueRow | Problem]:
    """One JSON value a line; BLANK for a blank line."""
    for number, text, problem in lines:
        if problem:
            yield Problem(number, problem)
        elif not text.strip(" \t\r\n"):
            yield number, BLANK
        else:
            try:
                row = number, json.loads(text)
            except json.JSONDecodeError as error:
                yield Problem(number, f"not JSON: {error.msg} at column {error.colno}")
            except (ValueError, RecursionError) as error:
                yield Problem(number, f"JSON that cannot be read: {error}")
            else:
                yield row


def json_file_rows(stream: BinaryIO, encoding: str, path: str) -> Iterator[ValueRow]:
    """The entries of one JSON array, or of one object of objects, each with its line.

    The file is held in memory.  Raises DataError where the JSON is broken, with the line.
    """
    advice = f"for one object a line give {param('format', 'jsonl')}"
    with json_cursor(stream, encoding, path, advice) as cursor:
        for _ in cursor.entries():
            yield cursor.line, cursor.value()
        cursor.end()


def parquet_names(path: str) -> list[str]:
    """The names of a Parquet file's columns; DataError where it is none."""
    with _parquet(path) as file:
        return list(file.schema_arrow.names)


def parquet_rows(path: str, columns: Sequence[str]) -> Iterator[ValueRow]:
    """Rows of a Parquet file as objects of the named columns, numbered from 1."""
    number = 0
    with _parquet(path) as file:
        for batch in file.iter_batches(batch_size=PARQUET_BATCH, columns=list(columns)):
            for value in batch.to_pylist():
                number += 1
                yield number, value


@contextmanager
def _parquet(path: str) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with Path(path).open("rb") as stream, pq.ParquetFile(stream) as file:
            yield file
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not a Parquet file that can be read: {error}") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {os_reason(error)}") from error
