"""Tables in Arrow's types: Parquet, Arrow and Feather files, and what ``save_to_disk`` writes.

Their columns have names, and only those asked for are read.  Where ``datasets`` says what classes
the numbers of a column are, in a file's schema or in a dataset_info.json beside it, names are read.
"""

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from tidybert.errors import DataError
from tidybert.files.reading import ReadReport
from tidybert.files.rows import Record, named
from tidybert.files.text_lines import check_unpacked
from tidybert.storage.json_objects import read_json_object
from tidybert.storage.opening import is_plain_name, open_regular, os_reason, present

PARQUET_BATCH: Final = 1024
STATE_FILE: Final = "state.json"
SPLITS_FILE: Final = "dataset_dict.json"
INFO_FILE: Final = "dataset_info.json"

Opener = Callable[[], io.BufferedReader]
"""Opens a file that is not on this machine under its name."""
Columns = tuple[Sequence[str], Callable[[Sequence[str]], Iterator[Record]]]
"""The names of a table's columns, and what gives the rows of some of them."""


def parquet_names(path: str, opened: Opener | None = None) -> list[str]:
    """The names of a Parquet file's columns; DataError for another file."""
    with _parquet(path, opened) as file:
        return list(file.schema_arrow.names)


def parquet_rows(
    path: str,
    columns: Sequence[str],
    opened: Opener | None = None,
    classes: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Iterator[Record]:
    """Rows of a Parquet file as objects of the named columns, numbered from 1."""
    number = 0
    with _parquet(path, opened) as file:
        for batch in file.iter_batches(batch_size=PARQUET_BATCH, columns=list(columns)):
            for value in batch.to_pylist():
                number += 1
                yield number, with_names(value, classes)


def parquet_columns(path: str, report: ReadReport) -> Columns:
    """A Parquet file."""
    with _parquet(path, None) as file:
        names = list(file.schema_arrow.names)
        classes = class_names(path, report, file.schema_arrow.metadata)
    return names, lambda wanted: parquet_rows(path, wanted, classes=classes)


@contextmanager
def _parquet(path: str, opened: Opener | None) -> Iterator[Any]:
    import pyarrow.parquet as pq

    with (
        _arrow_errors(path, "a Parquet"),
        opened() if opened else open_regular(path) as stream,
        pq.ParquetFile(stream) as file,
    ):
        groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
        size = sum(group.total_byte_size for group in groups)
        check_unpacked(size, stream.seek(0, io.SEEK_END), path)
        yield file


def arrow_columns(path: str, report: ReadReport) -> Columns:
    """A file in Arrow's formats for files or streams, or the folder of a Dataset on disk."""
    files = _files_of(Path(path)) if Path(path).is_dir() else [path]
    with _arrow(files[0]) as (reader, _):
        names = list(reader.schema.names)
        classes = class_names(files[0], report, reader.schema.metadata)

    def rows(wanted: Sequence[str]) -> Iterator[Record]:
        number = 0
        for file in files:
            with _arrow(file) as (_, batches), _arrow_errors(file, "an Arrow"):
                for batch in batches:
                    # Only a check of all buffers makes the content of foreign ones safe.
                    batch.validate(full=True)
                    for value in batch.select(list(wanted)).to_pylist():
                        number += 1
                        yield number, with_names(value, classes)

    return names, rows


@contextmanager
def _arrow(path: str) -> Iterator[tuple[Any, Iterator[Any]]]:
    """What reads a file, and its batches, up to the limits on what they unpack to."""
    import pyarrow as pa

    def limited(batches: Iterator[Any], size: int) -> Iterator[Any]:
        total = 0
        for batch in batches:
            total += batch.nbytes
            check_unpacked(total, size, path)
            yield batch

    with _arrow_errors(path, "an Arrow"), open_regular(path) as stream:
        size = stream.seek(0, io.SEEK_END)
        stream.seek(0)
        if stream.peek(6)[:6] == b"ARROW1":
            reader = pa.ipc.open_file(stream)
            batches = map(reader.get_batch, range(reader.num_record_batches))
        else:
            reader = pa.ipc.open_stream(stream)
            batches = iter(reader)
        yield reader, limited(batches, size)


@contextmanager
def _arrow_errors(path: str, kind: str) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except MemoryError:
        raise
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not {kind} file that can be read: {error}") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {os_reason(error)}") from error


def _files_of(folder: Path) -> list[str]:
    """The files of a Dataset on disk, as its state.json names them."""
    if present(folder / SPLITS_FILE):
        splits = read_json_object(folder / SPLITS_FILE, error=DataError).get("splits")
        known = [str(each) for each in splits] if isinstance(splits, list) else []
        shown = ", ".join(repr(str(folder / each)) for each in known[:5])
        raise DataError(f"{folder}: it holds several data sets: name one of {shown}")
    files = read_json_object(folder / STATE_FILE, error=DataError).get("_data_files")
    listed = files if isinstance(files, list) else []
    names = [each.get("filename") for each in listed if isinstance(each, dict)]
    if not names or not all(map(is_plain_name, names)):
        raise DataError(f"{folder / STATE_FILE}: '_data_files' names no files of this folder")
    return [str(folder / str(name)) for name in names]


def class_names(
    path: str, report: ReadReport, schema: Mapping[bytes, bytes] | None = None
) -> dict[str, Sequence[str]]:
    """The names of the classes that ``datasets`` records, by column; from the file's own schema,
    or else from a dataset_info.json beside it.
    """
    info: Any = None
    try:
        if schema and b"huggingface" in schema:
            info = json.loads(schema[b"huggingface"])["info"]
    except (ValueError, LookupError, TypeError, RecursionError):
        info = None
    beside = Path(path).parent / INFO_FILE
    if info is None and path != "-" and present(beside):
        info = read_json_object(beside, error=DataError)
    features = info.get("features") if isinstance(info, dict) else None
    found: dict[str, Sequence[str]] = {}
    for column, feature in features.items() if isinstance(features, dict) else ():
        inner = feature.get("feature", feature) if isinstance(feature, dict) else None
        names = inner.get("names") if isinstance(inner, dict) else None
        if isinstance(names, list) and all(isinstance(name, str) for name in names):
            found[str(column)] = names
    if found:
        shown = ", ".join(repr(name[:40]) for name in found)
        report.notes.append(f"numbers in {shown} are read as the names of their classes")
    return found


def with_names(record: dict[str, Any], classes: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """A record with the names of classes in place of their numbers."""
    for column in classes.keys() & record.keys():
        record[column] = named(record[column], classes[column])
    return record
