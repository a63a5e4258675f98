"""Tables in Arrow's types: Parquet, Arrow and Feather files, and what ``save_to_disk`` writes.

Their columns have names, and only those asked for are read.  Where ``datasets`` says what classes
the numbers of a column are, in a file's schema or in a dataset_info.json beside it, names are read.
"""

import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from tidybert.errors import DataError
from tidybert.files.reading import ReadReport
from tidybert.files.rows import Record, feature_names, named, schema_features
from tidybert.files.text_lines import check_unpacked
from tidybert.storage.json_objects import read_json_object
from tidybert.storage.limits import ROW_BYTES
from tidybert.storage.opening import is_plain_name, open_regular, os_reason, present

PARQUET_BATCH: Final = 1024
# Bytes of a batch's texts, of a row beside its values, and of a value that is no text.
_AT_ONCE: Final = 2**28
_ROW: Final = 512
_VALUE: Final = 8
STATE_FILE: Final = "state.json"
SPLITS_FILE: Final = "dataset_dict.json"
INFO_FILE: Final = "dataset_info.json"

Opener = Callable[[], io.BufferedReader]
"""Opens a file that is not on this machine under its name."""
Columns = tuple[Sequence[str], Callable[[Sequence[str]], Iterator[Record]]]
"""The names of a table's columns, and what gives the rows of some of them."""


def parquet_names(path: str, opened: Opener | None = None) -> list[str]:
    """The names of a Parquet file's columns; DataError for another file."""
    with _parquet(path, opened) as (file, _):
        return list(file.schema_arrow.names)


def parquet_rows(
    path: str,
    columns: Sequence[str],
    opened: Opener | None = None,
    classes: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Iterator[Record]:
    """Rows of a Parquet file as objects of the named columns, numbered from 1."""
    with _parquet(path, opened) as (file, stream):
        size, batches = stream.seek(0, io.SEEK_END), _parquet_batches(file, stream, columns)
        yield from _rows(batches, size, path, classes)


def parquet_columns(path: str, report: ReadReport) -> Columns:
    """A Parquet file."""
    with _parquet(path, None) as (file, _):
        names = list(file.schema_arrow.names)
        classes = class_names(path, report, file.schema_arrow.metadata)
    return names, lambda wanted: parquet_rows(path, wanted, classes=classes)


@contextmanager
def _parquet(path: str, opened: Opener | None) -> Iterator[tuple[Any, io.BufferedReader]]:
    """What reads a file, and its stream; LimitError for one that says it unpacks to more."""
    import pyarrow.parquet as pq

    with (
        _arrow_errors(path, "a Parquet"),
        opened() if opened else open_regular(path) as stream,
    ):
        schema = pq.ParquetFile(stream).schema
        leaves = [schema.column(at) for at in range(len(schema))]
        lists = [each.path for each in leaves if each.max_repetition_level]
        texts = [each.path for each in leaves if each.physical_type == "BYTE_ARRAY"]
        # Lists of texts stay numbers of a dictionary: one row may repeat a text without end.
        kept = [each for each in lists if each in texts]
        with pq.ParquetFile(stream, read_dictionary=kept) as file:
            total = 0
            for group in map(file.metadata.row_group, range(file.metadata.num_row_groups)):
                chunks = map(group.column, range(group.num_columns))
                in_lists = [each.num_values for each in chunks if each.path_in_schema in lists]
                total += group.total_byte_size + _VALUE * sum(in_lists)
            check_unpacked(total, stream.seek(0, io.SEEK_END), path)
            yield file, stream


def _parquet_batches(file: Any, stream: io.BufferedReader, columns: Sequence[str]) -> Iterator[Any]:
    """Batches of few enough rows where a column's texts are repeated ones of a long dictionary."""
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        chunks = map(group.column, range(group.num_columns))
        widest = max((_widest(each, stream) for each in chunks), default=0)
        rows = min(max(_AT_ONCE // max(widest, 1), 1), PARQUET_BATCH)
        yield from file.iter_batches(rows, row_groups=[number], columns=list(columns))


def _widest(chunk: Any, stream: io.BufferedReader) -> int:
    """The most bytes of a text that takes less room in a column's chunk than it has."""
    if chunk.physical_type != "BYTE_ARRAY":
        return 0
    if chunk.has_dictionary_page and "DELTA_BYTE_ARRAY" not in chunk.encodings:
        stream.seek(chunk.dictionary_page_offset)
        # Type and unpacked size of a page: github.com/apache/parquet-format, PageHeader.
        if head := re.match(rb"\x15\x04\x15([\x80-\xff]{0,4}[\0-\x7f])", stream.read(8)):
            return int(sum((byte & 127) << 7 * at for at, byte in enumerate(head[1])) >> 1)
    is_repeated = chunk.has_dictionary_page or "DELTA_BYTE_ARRAY" in chunk.encodings
    return int(chunk.total_uncompressed_size) if is_repeated else 0


def arrow_columns(path: str, report: ReadReport) -> Columns:
    """A file in Arrow's formats for files or streams, or the folder of a Dataset on disk."""
    files = _files_of(Path(path)) if Path(path).is_dir() else [path]
    with _arrow(files[0]) as (reader, *_):
        names = list(reader.schema.names)
        classes = class_names(files[0], report, reader.schema.metadata)

    def rows(wanted: Sequence[str]) -> Iterator[Record]:
        number = 0
        for file in files:
            with _arrow(file) as (_, batches, size), _arrow_errors(file, "an Arrow"):
                chosen = (batch.select(list(wanted)) for batch in batches)
                for record in _rows(chosen, size, file, classes, number):
                    number = record[0]
                    yield record

    return names, rows


def _rows(
    batches: Iterable[Any],
    size: int,
    path: str,
    classes: Mapping[str, Sequence[str]],
    number: int = 0,
) -> Iterator[Record]:
    """Rows as objects, each made when it is asked for, up to the limits on what they come to."""
    import pyarrow as pa

    total = 0
    for batch in batches:
        plain = [_is_plain(kind) for kind in batch.schema.types]
        for scalars in zip(*batch.columns, strict=True):
            row, record = _Row(path), {}
            for name, is_plain, scalar in zip(batch.schema.names, plain, scalars, strict=True):
                record[name] = row.leaf(scalar) if is_plain else row.value(scalar, pa)
            number += 1
            total += row.num_bytes
            check_unpacked(total, size, path)
            yield number, with_names(record, classes)


def _is_plain(kind: Any) -> bool:
    """Whether a value of a type is in the file as it is, once for each row."""
    import pyarrow as pa

    types = pa.types
    is_other = (types.is_nested, types.is_dictionary, types.is_run_end_encoded)
    return not any(check(kind) for check in is_other) and not isinstance(kind, pa.BaseExtensionType)


class _Row:
    """Makes the values of one row, and counts what they take: a file may name one many times."""

    def __init__(self, path: str) -> None:
        self.path, self.num_bytes = path, _ROW

    def leaf(self, scalar: Any) -> Any:
        value = scalar.as_py()
        self._count(len(value) if isinstance(value, str | bytes) else _VALUE)
        return value

    def value(self, scalar: Any, pa: Any) -> Any:
        """What ``as_py`` gives; of a list no more than fits into ROW_BYTES."""
        if not scalar.is_valid:
            return self.leaf(scalar)
        is_extension = isinstance(scalar, pa.ExtensionScalar)
        if isinstance(scalar, (pa.DictionaryScalar, pa.RunEndEncodedScalar, pa.UnionScalar)) or (
            is_extension and pa.types.is_nested(scalar.type.storage_type)
        ):
            return self.value(scalar.value, pa)
        if isinstance(scalar, pa.MapScalar):
            self._count(_VALUE * len(scalar.values))
            return [(self.value(each[0], pa), self.value(each[1], pa)) for each in scalar.values]
        if isinstance(scalar, pa.ListScalar):
            self._count(_VALUE * len(scalar.values))
            return [self.value(each, pa) for each in scalar.values]
        if isinstance(scalar, pa.StructScalar):
            names = [each.name for each in scalar.type]
            return {name: self.value(scalar[at], pa) for at, name in enumerate(names)}
        return self.leaf(scalar)

    def _count(self, num_bytes: int) -> None:
        self.num_bytes += num_bytes
        ROW_BYTES.check(self.num_bytes, self.path)


@contextmanager
def _arrow(path: str) -> Iterator[tuple[Any, Iterator[Any], int]]:
    """What reads a file, its batches up to the limits on what they unpack to, and its bytes."""
    import pyarrow as pa

    def limited(batches: Iterator[Any], size: int) -> Iterator[Any]:
        total = 0
        for batch in batches:
            total += batch.nbytes
            check_unpacked(total, size, path)
            # Only a check of all buffers makes the content of foreign ones safe.
            batch.validate(full=True)
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
        yield reader, limited(batches, size), size


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
    features, beside = schema_features(schema), Path(path).parent / INFO_FILE
    if features is None and path != "-" and present(beside):
        features = read_json_object(beside, error=DataError).get("features")
    return noted_classes(feature_names(features), report)


def noted_classes(found: dict[str, Sequence[str]], report: ReadReport) -> dict[str, Sequence[str]]:
    """The names of classes, noted where there are any."""
    if found:
        shown = ", ".join(repr(name[:40]) for name in found)
        report.notes.append(f"numbers in {shown} are read as the names of their classes")
    return found


def with_names(record: dict[str, Any], classes: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """A record with the names of classes in place of their numbers."""
    for column in classes.keys() & record.keys():
        record[column] = named(record[column], classes[column])
    return record
