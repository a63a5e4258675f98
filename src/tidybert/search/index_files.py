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
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import asdict, replace

from tidybert.catalog import PRETRAINED
from tidybert.errors import LINE, DataError, DiskError, TidyBertError, UsageError, param
from tidybert.files.reading import ReadReport
from tidybert.files.rows import count_of, has_lone_surrogate
from tidybert.files.text_examples import TextExample
from tidybert.files.text_files import read_examples
from tidybert.inference.answer_files import Chunk, Layout, chunk_size, embedded_chunks, npy_header
from tidybert.inference.embedding import Embedder
from tidybert.inference.text_jobs import EmbedJob
from tidybert.search.nearest_vectors import DTYPES
from tidybert.storage.journal import Count, Journal, check_settings, is_begun
from tidybert.storage.json_objects import one_of, plain_json
from tidybert.storage.opening import open_regular, present
from tidybert.storage.output_lock import output_lock
from tidybert.storage.own_files import GrowingFile, remove_tree
from tidybert.storage.part_file import SECONDS_BETWEEN_SAVES, Written
from tidybert.system.reporter import SILENT, Reporter

if TYPE_CHECKING:
    import pyarrow as pa


INDEX_FILE: Final = "index.json"
PROGRESS_FILE: Final = "progress.json"
VECTORS_FILE: Final = "vectors.npy"
SCALES_FILE: Final = "scales.npy"
TEXTS_FILE: Final = "texts.arrow"
_VERSION: Final = 1
_CHECKED_AT_ONCE: Final = 2**26


class IndexSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the vectors depend on; ``model`` and ``dimension`` are for whoever searches."""

    model: str
    fingerprint: str
    pooling: str
    prompt: str
    max_seq_length: Count
    dtype: Annotated[str, one_of(DTYPES)]
    precision: str
    dimension: Count


class IndexState(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What an index holds, or holds so far: index.json, and progress.json beside it.

    Args:
        text_bytes: of texts.arrow.
        sha256: of the files' contents, without the headers of .npy; empty while it is unfinished.
    """

    index_version: int = _VERSION
    settings: IndexSettings
    num_texts: Count = 0
    num_truncated: Count = 0
    text_bytes: Count = 0
    sha256: dict[str, str] = {}

    def headers(self, num_texts: int) -> dict[str, bytes]:
        """What each file of numbers begins with, where it has so many rows."""
        dtype = self.settings.dtype
        found = {VECTORS_FILE: npy_header(dtype, (num_texts, self.settings.dimension))}
        if dtype == "int8":
            found[SCALES_FILE] = npy_header("float32", (num_texts,))
        return found

    def parts(self) -> dict[str, tuple[int, int]]:
        """Where the content of each file begins and ends."""
        row_bytes = np.dtype(self.settings.dtype).itemsize * self.settings.dimension
        found = {TEXTS_FILE: (0, self.text_bytes)}
        for name, header in self.headers(0).items():
            each = row_bytes if name == VECTORS_FILE else 4
            found[name] = (len(header), len(header) + each * self.num_texts)
        return found

    def with_hashes(self, directory: Path) -> "IndexState":
        """The same state with the sha256 of what is on the disk."""
        return replace(self, sha256=dict(_hashes(directory, self)))


def read_state(path: Path) -> IndexState:
    """What index.json or progress.json says; DataError for one that is damaged or of the future."""
    journal = Journal(path, IndexState, _AGAIN)
    content = journal.content()
    version = content.get("index_version", _VERSION)
    if version != _VERSION:
        raise DataError(
            f"{path}: written by another version of tidybert (index_version {version!r:.20}, "
            f"expected {_VERSION}); make the index again"
        )
    return journal.decoded(content)


_AGAIN: Final = "make the index again with tidybert index, in a new directory"


def open_state(directory: str | Path) -> IndexState:
    """The state of a finished index, whose files are whole."""
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
    shapes = {VECTORS_FILE: (state.num_texts, state.settings.dimension)}
    for name, (begin, _) in state.parts().items():
        if name != TEXTS_FILE:
            dtype = state.settings.dtype if name == VECTORS_FILE else "float32"
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


# Texts to an index: only those that it does not hold yet are computed.
#
# A second call with the same texts continues the first one where it was stopped, and a call with
# more texts adds those.  A chunk's size depends only on the settings and where the call began to
# add, so a stopped call ends with the same bytes as an uninterrupted one.

Computed = Callable[[Iterator[TextExample]], Iterable[Chunk]]
"""From texts to their vectors in chunks; only examples, truncated and vectors are read."""


def write_index(
    embedder: Embedder,
    examples: Iterable[TextExample],
    directory: str | Path,
    *,
    dtype: str = "float32",
    model: str = "",
    computed: Computed | None = None,
    reporter: Reporter = SILENT,
) -> Written:
    """Make ``directory`` an index of the texts, or add those to it that it lacks."""
    if dtype not in DTYPES:
        raise UsageError(f"{param('dtype')} {dtype!r}: expected one of {', '.join(DTYPES)}")
    assert embedder.normalize, "an index holds vectors of length 1"
    directory = Path(directory)
    settings = IndexSettings(
        model=model if model in PRETRAINED else str(Path(model).absolute()),
        fingerprint=embedder.fingerprint,
        pooling=embedder.pooling,
        prompt=embedder.prompt,
        max_seq_length=embedder.max_seq_length,
        dtype=dtype,
        precision=embedder.precision,
        dimension=embedder.dimension,
    )
    left = iter(examples)
    with output_lock(directory):
        before = _state_in(directory, settings)
        state = before or IndexState(settings=settings)
        _skip_done(left, directory, state)
        reporter.advance(state.num_texts)
        first = next(left, None)
        if first is None and before is None:
            raise DataError("there are no texts to index")
        if first is None and state.sha256:
            return Written(state.num_texts, state.num_truncated, state.num_texts)
        with ExitStack() as stack:
            growing = _Growing(directory, state, is_new=before is None, stack=stack)
            if first is not None:
                lacking = chain([first], left)
                if computed is not None:
                    growing.add(computed(lacking), reporter)
                else:
                    layout = Layout(embedder.dimension, False, "float32")
                    size = chunk_size(embedder, layout)
                    chunks = embedded_chunks(embedder, lacking, layout, first=size, largest=size)
                    growing.add(chunks, reporter)
            growing.finish()
    return Written(growing.state.num_texts, growing.state.num_truncated, state.num_texts)


def _state_in(directory: Path, settings: IndexSettings) -> IndexState | None:
    """How far the index in a directory is; None where no text has been done."""
    names = (PROGRESS_FILE, INDEX_FILE)
    if not is_begun(directory, names, "index"):
        return None
    state = read_state(next(directory / name for name in names if (directory / name).exists()))
    if not state.num_texts:
        return None
    if state.settings.fingerprint != settings.fingerprint:
        raise UsageError(
            f"{param('out', directory)} has vectors of another model, {state.settings.model}: "
            "their cosines mean nothing beside those of this one; name a new directory"
        )
    check_settings(
        # The same model may be in another place.
        asdict(replace(state.settings, model=settings.model)),
        asdict(settings),
        f"{param('out', directory)} was made",
        "give the same, or name a new directory",
    )
    return state


def _skip_done(left: Iterator[TextExample], directory: Path, state: IndexState) -> None:
    """Take the texts that are done off the front; DataError unless they are the same."""
    if not state.num_texts:
        return
    num_same = 0
    for batch in text_batches(directory, state):
        kept = zip(batch["text"].to_pylist(), batch["columns"].to_pylist(), strict=True)
        for (text, columns), one in zip(kept, islice(left, batch.num_rows), strict=False):
            if one.text != text or columns_json(one) != columns:
                raise DataError(
                    f"{LINE} {one.row} is not what {directory} has of it: the file has changed "
                    f"since. The index has {text[:60]!r}, the file {one.text[:60]!r}; index it "
                    f"into a new {param('out')}"
                )
            num_same += 1
    if num_same < state.num_texts:
        raise DataError(
            f"{directory} has {count_of(state.num_texts, 'text')}, and the file only its first "
            f"{num_same:,}: give all of them, or index the file into a new {param('out')}"
        )


class _Growing:
    """The files of an index while they grow."""

    def __init__(
        self, directory: Path, state: IndexState, *, is_new: bool, stack: ExitStack
    ) -> None:
        self.directory, self.state = directory, replace(state, sha256={})
        self._files: dict[str, GrowingFile] = {}
        self._saved = time.monotonic()
        if is_new:
            # Before the files: without it they would be somebody else's.
            self._write(PROGRESS_FILE, self.state)
        begins = {**self.state.headers(0), TEXTS_FILE: bytes(text_schema().serialize())}
        for name, (_, end) in self.state.parts().items():
            path = directory / name
            if is_new:
                # A kill before the first save left it.
                remove_tree(path)
            self._files[name] = GrowingFile(path, None if is_new else end)
            stack.callback(self._files[name].close)
            if is_new:
                self._files[name].write(begins[name])

    def add(self, chunks: Iterable[Chunk], reporter: Reporter) -> None:
        """Write texts as their vectors come; what is done when an error comes stays."""
        try:
            for chunk in chunks:
                self._append(list(chunk.examples), chunk.vectors, sum(chunk.truncated))
                reporter.advance(self.state.num_texts)
                if time.monotonic() - self._saved >= SECONDS_BETWEEN_SAVES:
                    self._save()
        except BaseException:
            # On a full disk what was saved before is still valid.
            with suppress(OSError, DiskError):
                self._save()
            raise

    def finish(self) -> None:
        """Make the index of the files."""
        self._save()
        for name, header in self.state.headers(self.state.num_texts).items():
            self._files[name].replace_head(header)
            self._files[name].sync()
        self.state = self.state.with_hashes(self.directory)
        self._write(INDEX_FILE, self.state)
        remove_tree(self.directory / PROGRESS_FILE)

    def _append(
        self, examples: list[TextExample], vectors: npt.NDArray[np.float32], num_truncated: int
    ) -> None:
        if any(one.text_pair is not None for one in examples):
            raise UsageError(
                f"the file has pairs of texts: name the column to search in with {param('text')}; "
                "the other columns are kept beside it"
            )
        numbers, scales = rounded(vectors, self.state.settings.dtype)
        content = {VECTORS_FILE: numbers.tobytes(), TEXTS_FILE: text_batch(examples)}
        if scales is not None:
            content[SCALES_FILE] = scales.tobytes()
        for name, data in content.items():
            self._files[name].write(data)
        self.state.num_texts += len(examples)
        self.state.num_truncated += num_truncated
        self.state.text_bytes = self._files[TEXTS_FILE].size

    def _save(self) -> None:
        for file in self._files.values():
            file.sync()
        self._write(PROGRESS_FILE, self.state)
        self._saved = time.monotonic()

    def _write(self, name: str, state: IndexState) -> None:
        Journal(self.directory / name, IndexState, _AGAIN).write(state)


def rounded(
    vectors: npt.NDArray[np.float32], dtype: str
) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32] | None]:
    """(n, d) of the dtype, and for int8 the scales (n,): the largest number of a vector is 127."""
    if dtype != "int8":
        return vectors.astype(dtype), None
    scales = (np.abs(vectors).max(axis=1) / 127).astype(np.float32)
    return np.rint(vectors / np.where(scales > 0, scales, 1)[:, None]).astype(np.int8), scales


@dataclass(frozen=True, kw_only=True)
class IndexJob(EmbedJob):
    """An index of a file's texts, whose vectors are ``stored`` as float32, float16 or int8.

    A worker of a cluster writes the vectors of its file alone, to be mapped into memory.
    """

    stored: str = "float32"
    name: ClassVar = "index"
    suffix: ClassVar = ".npy"

    @contextmanager
    def alone(self, target: Path, resume: bool) -> Iterator[Any]:
        with output_lock(target) as lock:
            yield lock

    def examples(self, opened: Any, source: str | Path, report: ReadReport) -> Iterator[Any]:
        """The texts of a file with the other columns of their rows."""
        return read_examples.with_details(keep_columns=True)(
            source, self.read, need_label=False, skip_bad_rows=self.skip_bad_rows, report=report
        )

    def write(
        self, opened: Embedder, texts: Iterable[Any], target: Path, resume: bool, reporter: Reporter
    ) -> Written:
        return write_index(
            opened, texts, target, dtype=self.stored, model=self.model, reporter=reporter
        )

    def write_file(
        self, opened: Any, source: Path, target: Path, report: ReadReport, reporter: Reporter
    ) -> Written:
        texts = super().examples(opened, source, report)
        return super().write(opened, texts, target, resume=True, reporter=reporter)
