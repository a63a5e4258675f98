"""An index on disk: its files, and what index.json says of them.

    index.json    the settings, how many texts there are, and the sha256 of each file's content
    vectors.npy   (n, d) float32, float16 or int8, each of length 1
    scales.npy    (n,) float32: what the int8 numbers of a vector are multiplied by
    texts.arrow   an Arrow stream: row (the line in the file), text, columns (a JSON object)

The files only grow.  index.json is replaced last, and a reader looks at no more than it says.  So
an index stays whole while texts are added, and progress.json says how far that is.
"""

import hashlib
import json
import mmap
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from tidybert.errors import DataError, TidyBertError, UsageError
from tidybert.files.text_examples import TextExample
from tidybert.files.wording import has_lone_surrogate
from tidybert.inference.vector_formats import npy_header
from tidybert.modeling.kernels.nearest_vectors import DTYPES
from tidybert.storage.json_objects import json_checksum, plain_json, read_json_object
from tidybert.storage.opening import open_regular, present

if TYPE_CHECKING:
    import pyarrow as pa

INDEX_FILE: Final = "index.json"
PROGRESS_FILE: Final = "progress.json"
VECTORS_FILE: Final = "vectors.npy"
SCALES_FILE: Final = "scales.npy"
TEXTS_FILE: Final = "texts.arrow"
_VERSION: Final = 1
_TEXTS: Final = ("model", "fingerprint", "pooling", "prompt", "precision")
_CHECKED_AT_ONCE: Final = 2**26


@dataclass(frozen=True)
class IndexState:
    """What an index holds, or holds so far.

    Args:
        settings: what the vectors depend on; ``model`` and ``dimension`` are for whoever searches.
        text_bytes: of texts.arrow.
        sha256: of the files' contents, without the headers of .npy; empty while it is unfinished.
    """

    settings: Mapping[str, Any]
    num_texts: int = 0
    num_truncated: int = 0
    text_bytes: int = 0
    sha256: Mapping[str, str] = field(default_factory=dict)

    def counts(self) -> tuple[int, ...]:
        """All whole numbers, which are 0 or more."""
        of_vectors = self.settings["dimension"], self.settings["max_seq_length"]
        return self.num_texts, self.num_truncated, self.text_bytes, *of_vectors

    def headers(self, num_texts: int) -> dict[str, bytes]:
        """What each file of numbers begins with, where it has so many rows."""
        dtype = self.settings["dtype"]
        found = {VECTORS_FILE: npy_header(dtype, (num_texts, self.settings["dimension"]))}
        if dtype == "int8":
            found[SCALES_FILE] = npy_header("float32", (num_texts,))
        return found

    def parts(self) -> dict[str, tuple[int, int]]:
        """Where the content of each file begins and ends."""
        row_bytes = np.dtype(self.settings["dtype"]).itemsize * self.settings["dimension"]
        found = {TEXTS_FILE: (0, self.text_bytes)}
        for name, header in self.headers(0).items():
            each = row_bytes if name == VECTORS_FILE else 4
            found[name] = (len(header), len(header) + each * self.num_texts)
        return found

    def contents(self) -> dict[str, Any]:
        """For index.json or progress.json."""
        content = {"index_version": _VERSION, **asdict(self)}
        return {**content, "checksum": json_checksum(plain_json(content))}

    def with_hashes(self, directory: Path) -> "IndexState":
        """The same state with the sha256 of what is on the disk."""
        return replace(self, sha256=dict(_hashes(directory, self)))


def read_state(path: Path) -> IndexState:
    """What index.json or progress.json says; DataError for one that is damaged or of the future."""
    content = read_json_object(path, error=DataError)
    checksum = content.pop("checksum", None)
    if content.get("index_version") != _VERSION and checksum == json_checksum(content):
        raise DataError(
            f"{path}: written by another version of tidybert (index_version "
            f"{content.get('index_version')!r:.20}, expected {_VERSION}); make the index again"
        )
    if checksum != json_checksum(content):
        raise DataError(f"{path} is damaged: its content has another checksum; {_AGAIN}")
    del content["index_version"]
    try:
        state = IndexState(**content)
        is_whole = (
            state.settings["dtype"] in DTYPES
            and all(isinstance(state.settings[name], str) for name in _TEXTS)
            and all(type(each) is int and each >= 0 for each in state.counts())
        )
    except (KeyError, TypeError):
        is_whole = False
    if not is_whole:
        raise DataError(f"{path} is damaged: it lacks what an index says; {_AGAIN}")
    return state


_AGAIN: Final = "make the index again with tidybert index, in a new directory"


def open_state(directory: str | Path) -> IndexState:
    """The state of a finished index, whose files are whole.

    Raises UsageError for a directory that is no index, or an unfinished one, and DataError for
    files that are missing, shorter, or not what index.json says.
    """
    directory = Path(directory)
    if not present(directory / INDEX_FILE):
        if not present(directory / PROGRESS_FILE):
            raise UsageError(
                f"{directory} is not an index: it has no {INDEX_FILE}; make one with tidybert index"
            )
        done = read_state(directory / PROGRESS_FILE).num_texts
        raise UsageError(
            f"{directory} is an unfinished index: {done:,} texts are done; the command that began "
            "it continues it"
        )
    state = read_state(directory / INDEX_FILE)
    for name, found in _hashes(directory, state):
        if found != state.sha256.get(name):
            raise DataError(
                f"{directory / name} is damaged: its content is not what {INDEX_FILE} says; "
                f"{_AGAIN}"
            )
    return state


def open_vectors(
    directory: Path, state: IndexState
) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32] | None]:
    """(n, d) and the scales (n,) of int8, mapped from the files."""
    arrays: dict[str, Any] = {}
    shapes = {VECTORS_FILE: (state.num_texts, state.settings["dimension"])}
    for name, (begin, _) in state.parts().items():
        if name != TEXTS_FILE:
            dtype = state.settings["dtype"] if name == VECTORS_FILE else "float32"
            shape = shapes.get(name, (state.num_texts,))
            # PyTorch takes memory that may be written; "c" never writes to the file.
            mapped = np.memmap(directory / name, dtype, "c", begin, shape)
            arrays[name] = np.asarray(mapped)
    return arrays[VECTORS_FILE], arrays.get(SCALES_FILE)


def text_schema() -> "pa.Schema":
    """The columns of texts.arrow."""
    import pyarrow as pa

    return pa.schema([("row", pa.int64()), ("text", pa.string()), ("columns", pa.string())])


def text_batch(examples: list[TextExample]) -> bytes:
    """Texts as a part of texts.arrow."""
    import pyarrow as pa

    columns = [
        [one.row for one in examples],
        [one.text for one in examples],
        [columns_json(one) for one in examples],
    ]
    schema = text_schema()
    arrays = [pa.array(values, each.type) for values, each in zip(columns, schema, strict=True)]
    return bytes(pa.record_batch(arrays, schema=schema).serialize())


def columns_json(example: TextExample) -> str:
    """The other columns of a text's row, as a JSON object."""
    columns = plain_json(example.columns or {})
    found = json.dumps(columns, ensure_ascii=False, default=str)
    # Half of a surrogate pair has no UTF-8, but an escape.
    return json.dumps(columns, default=str) if has_lone_surrogate(found) else found


def text_batches(directory: Path, state: IndexState) -> Iterator["pa.RecordBatch"]:
    """The texts of an index in parts, mapped from the file; DataError for a damaged file."""
    import pyarrow as pa

    path = directory / TEXTS_FILE
    try:
        with pa.memory_map(str(path)) as file:
            stream = pa.ipc.open_stream(file.read_buffer(state.text_bytes))
            yield from stream
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is damaged ({error}); {_AGAIN}") from error


def _hashes(directory: Path, state: IndexState) -> Iterator[tuple[str, str]]:
    for name, (begin, end) in state.parts().items():
        path = directory / name
        with open_regular(path) as file:
            if (size := os.fstat(file.fileno()).st_size) < end:
                raise DataError(f"{path} is damaged: it has {size:,} bytes of {end:,}; {_AGAIN}")
            _check_header(path, file.read(begin), state)
            digest = hashlib.sha256()
            with mmap.mmap(file.fileno(), end, access=mmap.ACCESS_READ) as content:
                view = memoryview(content)
                for start in range(begin, end, _CHECKED_AT_ONCE):
                    digest.update(view[start : min(start + _CHECKED_AT_ONCE, end)])
                view.release()
        yield name, digest.hexdigest()


def _check_header(path: Path, header: bytes, state: IndexState) -> None:
    """Raise DataError for a .npy header of another type or width.

    It may have more rows than the state: a kill came between the header and index.json.
    """
    if path.name == TEXTS_FILE:
        return
    import io

    stream = io.BytesIO(header)
    try:
        np.lib.format.read_magic(stream)
        shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    except (ValueError, TidyBertError) as error:
        raise DataError(f"{path} is damaged: {error}; {_AGAIN}") from None
    expected = npy_header(dtype.name, shape)
    known = state.headers(shape[0] if shape else 0)[path.name]
    if expected != header or expected != known:
        raise DataError(f"{path} is damaged: its header is not what {INDEX_FILE} says; {_AGAIN}")
