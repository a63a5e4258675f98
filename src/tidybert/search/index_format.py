"""An index on disk: its files, and what index.json says of them.

    index.json     the settings, how many texts there are, and the sha256 of each file's content
    vectors.npy    (n, d) float32, float16 or int8, each of length 1
    scales.npy     (n,) float32: what the int8 numbers of a vector are multiplied by
    texts.arrow    an Arrow stream: row (the line in the file), text, columns (a JSON object)
    documents.npy  (n,) int64 of passages: the number of their document, from 0
    changes.npy    (c, 2) int64: a document that counts no more, and the one in its place, or -1
    bits.npy       (n, W) uint64 of many vectors: see sign_bits
    words.npy      (w,) uint64: the hashes of words, in the order of each segment; see postings
    word_ends.npy  (w,) uint32: where the postings of each end, counted in its segment
    postings.npy   (p,) uint16: the place of a text in its segment, for each word in it
    counts.npy     (p,) uint8: how often the word is in the text, at most 255

The files only grow.  index.json is replaced last, and a reader looks at no more than it says.  So
an index stays whole while it changes, and progress.json says how far that is.  Only compacting
writes files anew: under other names (vectors-1.npy), which the next index.json tells.

A document is a text, or all passages of one.  n passages or texts, c changes.
"""

import hashlib
import io
import json
import mmap
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from tidybert.errors import DataError, TidyBertError, UsageError
from tidybert.files.rows import count_of
from tidybert.inference.answer_files import npy_header
from tidybert.search.nearest_vectors import DTYPES, Indices
from tidybert.search.postings import FILES, Segment
from tidybert.search.sign_bits import Scan
from tidybert.storage.journal import Count, Journal
from tidybert.storage.json_objects import one_of
from tidybert.storage.opening import open_regular, present

if TYPE_CHECKING:
    import pyarrow as pa


INDEX_FILE: Final = "index.json"
PROGRESS_FILE: Final = "progress.json"
VECTORS_FILE: Final = "vectors.npy"
SCALES_FILE: Final = "scales.npy"
TEXTS_FILE: Final = "texts.arrow"
DOCUMENTS_FILE: Final = "documents.npy"
CHANGES_FILE: Final = "changes.npy"
BITS_FILE: Final = "bits.npy"
AGAIN: Final = "make the index again with tidybert index, in a new directory"
# 1 had neither ids, passages nor changes; only 3 has words.
_VERSIONS: Final = (1, 2, 3)
_CHECKED_AT_ONCE: Final = 2**26


class IndexSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the vectors depend on; ``model`` and ``dimension`` are for whoever searches.

    ``id`` is the column of the ids of the texts; "" where their places are.  ``passages`` and
    ``passage_stride`` are tokens; 0 where texts are not cut into passages.
    """

    model: str
    fingerprint: str
    pooling: str
    prompt: str
    max_seq_length: Count
    dtype: Annotated[str, one_of(DTYPES)]
    precision: str
    dimension: Count
    id: str = ""
    passages: Count = 0
    passage_stride: Count = 0


class IndexState(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What an index holds, or holds so far: index.json, and progress.json beside it.

    Args:
        num_texts: of vectors, also of those that count no more.
        num_documents: of passages; 0 where each text is one.
        text_bytes: of texts.arrow.
        scan: None where there are no bits, or too few.
        segments: of words, by the texts; unset where the index has no words.
        generation: how often the index was compacted; a part of the files' names.
        sha256: of the files' contents, without the headers of .npy; empty while it is unfinished.
    """

    index_version: int = 2
    settings: IndexSettings
    num_texts: Count = 0
    num_truncated: Count = 0
    num_documents: Count = 0
    num_changes: Count = 0
    num_bits: Count = 0
    text_bytes: Count = 0
    scan: Scan | None = None
    segments: list[Segment] | msgspec.UnsetType = msgspec.UNSET
    generation: Count = 0
    sha256: dict[str, str] = {}

    def arrays(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """The dtype and the shape in each file of numbers; a shape without rows has no file."""
        settings, count = self.settings, self.num_texts
        last = self.segments[-1] if self.segments else Segment()
        sizes = (last.words[1],) * 2 + (last.postings[1],) * 2
        return {
            VECTORS_FILE: (settings.dtype, (count, settings.dimension)),
            SCALES_FILE: ("float32", (count if settings.dtype == "int8" else 0,)),
            DOCUMENTS_FILE: ("int64", (count if settings.passages else 0,)),
            CHANGES_FILE: ("int64", (self.num_changes, 2)),
            BITS_FILE: ("uint64", (self.num_bits, -(-settings.dimension // 64))),
            **{
                name: (dtype, (size,))
                for (name, dtype), size in zip(FILES.items(), sizes, strict=True)
            },
        }

    def with_words(self) -> "IndexState":
        """The same state, which keeps words from now on."""
        return self if self.has_words else replace(self, index_version=_VERSIONS[-1], segments=[])

    @property
    def has_words(self) -> bool:
        return isinstance(self.segments, list)

    @property
    def num_old_postings(self) -> int:
        """How many postings lie before those that were made of them again."""
        sizes = (each.postings for each in self.segments or ())
        return (
            self.segments[-1].postings[1] - sum(end - begin for begin, end in sizes)
            if self.segments
            else 0
        )

    def parts(self) -> dict[str, tuple[int, int]]:
        """Where the content of each file that is there begins and ends."""
        found = {TEXTS_FILE: (0, self.text_bytes)} if self.num_texts else {}
        for name, (dtype, shape) in self.arrays().items():
            if shape[0]:
                begin = len(npy_header(dtype, shape))
                found[name] = begin, begin + int(np.prod(shape)) * np.dtype(dtype).itemsize
        return found

    def file(self, name: str) -> str:
        """A file's name in this generation."""
        stem, suffix = name.split(".")
        return f"{stem}-{self.generation}.{suffix}" if self.generation else name

    def is_of_another(self, name: str) -> bool:
        """Whether it is the name of a file of another generation."""
        plain = re.sub(r"-\d+(?=\.)", "", name)
        return plain in {TEXTS_FILE, *self.arrays()} and name != self.file(plain)

    def with_hashes(self, directory: Path) -> "IndexState":
        """The same state with the sha256 of what is on the disk."""
        return replace(self, sha256=dict(_hashes(directory, self)))


def read_state(path: Path) -> IndexState:
    """What index.json or progress.json says; DataError for one that is damaged or of the future."""
    journal = Journal(path, IndexState, AGAIN)
    content = journal.content()
    version = content.get("index_version", 1)
    if version not in _VERSIONS:
        raise DataError(
            f"{path}: written by another version of tidybert (index_version {version!r:.20}, "
            f"expected {_VERSIONS[-1]} or less); make the index again"
        )
    return journal.decoded(content)


@dataclass(frozen=True)
class IndexContent:
    """A finished index whose files are whole: its state, its numbers by file, and its texts."""

    state: IndexState
    arrays: dict[str, npt.NDArray[Any]]
    batches: "list[pa.RecordBatch]"

    @cached_property
    def _ends(self) -> Indices:
        return np.cumsum([each.num_rows for each in self.batches], dtype=np.int64)

    def text(self, position: int) -> dict[str, Any]:
        """The row, the text and the columns (JSON) at a position."""
        number = int(np.searchsorted(self._ends, position, side="right"))
        at = position - (int(self._ends[number - 1]) if number else 0)
        return {name: self.batches[number][name][at].as_py() for name in text_schema().names}

    @cached_property
    def documents(self) -> Indices:
        """(n,) the number of each text's document."""
        return self.arrays.get(DOCUMENTS_FILE, np.arange(self.state.num_texts))

    @cached_property
    def changes(self) -> Indices:
        return self.arrays.get(CHANGES_FILE, np.empty((0, 2), dtype=np.int64))

    @cached_property
    def is_live(self) -> npt.NDArray[np.bool_]:
        """(n,) whether each text counts: nobody has deleted or replaced it."""
        dead = np.zeros(int(self.documents[-1]) + 1, dtype=bool)
        dead[self.changes[:, 0]] = True
        return ~dead[self.documents]

    @cached_property
    def places(self) -> Indices:
        """By document its place: what replaces another has its place, others are numbered."""
        is_new = np.ones(int(self.documents[-1]) + 1, dtype=bool)
        replacing = self.changes[self.changes[:, 1] >= 0]
        is_new[replacing[:, 1]] = False
        places = np.cumsum(is_new) - 1
        for old, new in replacing:
            places[new] = places[old]
        return places

    def id_of(self, document: int, columns: dict[str, Any]) -> str:
        """What names a document."""
        column = self.state.settings.id
        return str(columns[column] if column else self.places[document])

    @cached_property
    def rows(self) -> tuple[Indices, Indices]:
        """By document its first position, and the one after its last."""
        numbers = np.arange(int(self.documents[-1]) + 1)
        return (
            np.searchsorted(self.documents, numbers),
            np.searchsorted(self.documents, numbers, side="right"),
        )

    def numbers(self) -> dict[str, int]:
        """By id the number of the last document that has or had it."""
        if not self.state.settings.id:
            return {str(place): number for number, place in enumerate(self.places.tolist())}
        found, position = {}, 0
        documents = self.documents.tolist()
        for batch in self.batches:
            for columns in batch["columns"].to_pylist():
                document = documents[position]
                found[self.id_of(document, json.loads(columns))] = document
                position += 1
        return found


def open_index(directory: str | Path) -> IndexContent:
    """A finished index; UsageError for a directory that is none, and DataError for damage."""
    directory = Path(directory)
    if not present(directory / INDEX_FILE):
        if not present(directory / PROGRESS_FILE):
            raise UsageError(
                f"{directory} is not an index: it has no {INDEX_FILE}; make one with tidybert index"
            )
        done = read_state(directory / PROGRESS_FILE).num_texts
        raise UsageError(
            f"{directory} is an unfinished index of {count_of(done, 'text')}; the command that "
            "began it continues it"
        )
    while True:
        state = read_state(directory / INDEX_FILE)
        try:
            for name, found in _hashes(directory, state):
                if found != state.sha256.get(name):
                    raise DataError(
                        f"{directory / state.file(name)} is damaged: its content is not what "
                        f"{INDEX_FILE} says; {AGAIN}"
                    )
            return content_of(directory, state)
        except (DataError, OSError):
            # Compacting may have removed these files for others.
            if read_state(directory / INDEX_FILE) == state:
                raise


def content_of(directory: Path, state: IndexState) -> IndexContent:
    """What a state says, mapped from the files, finished or not."""
    arrays: dict[str, Any] = {}
    for name, (begin, _) in state.parts().items():
        if name != TEXTS_FILE:
            dtype, shape = state.arrays()[name]
            # PyTorch takes memory that may be written; "c" never writes to the file.
            mapped = np.memmap(directory / state.file(name), dtype, "c", begin, shape)
            arrays[name] = np.asarray(mapped)
    return IndexContent(state, arrays, list(text_batches(directory, state)))


def text_schema() -> "pa.Schema":
    """The columns of texts.arrow."""
    import pyarrow as pa

    return pa.schema([("row", pa.int64()), ("text", pa.string()), ("columns", pa.string())])


def text_batches(directory: Path, state: IndexState) -> Iterator["pa.RecordBatch"]:
    """The texts of an index in parts, mapped from the file; DataError for a damaged file."""
    import pyarrow as pa

    path = directory / state.file(TEXTS_FILE)
    try:
        with pa.memory_map(str(path)) as file:
            stream = pa.ipc.open_stream(file.read_buffer(state.text_bytes))
            yield from stream
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is damaged ({error}); {AGAIN}") from error


def _hashes(directory: Path, state: IndexState) -> Iterator[tuple[str, str]]:
    for name, (begin, end) in state.parts().items():
        path = directory / state.file(name)
        with open_regular(path) as file:
            if (size := os.fstat(file.fileno()).st_size) < end:
                raise DataError(f"{path} is damaged: it has {size:,} bytes of {end:,}; {AGAIN}")
            if name != TEXTS_FILE:
                _check_header(path, file.read(begin), *state.arrays()[name])
            digest = hashlib.sha256()
            with mmap.mmap(file.fileno(), end, access=mmap.ACCESS_READ) as content:
                view = memoryview(content)
                for start in range(begin, end, _CHECKED_AT_ONCE):
                    digest.update(view[start : min(start + _CHECKED_AT_ONCE, end)])
                view.release()
        yield name, digest.hexdigest()


def _check_header(path: Path, header: bytes, dtype: str, shape: tuple[int, ...]) -> None:
    """Raise DataError for a .npy header of another type or width.

    It may have more rows than the state: a kill came between the header and index.json.
    """
    stream = io.BytesIO(header)
    try:
        np.lib.format.read_magic(stream)
        found, _, _ = np.lib.format.read_array_header_1_0(stream)
    except (ValueError, TidyBertError) as error:
        raise DataError(f"{path} is damaged: {error}; {AGAIN}") from None
    if header != npy_header(dtype, (*found[:1], *shape[1:])):
        raise DataError(f"{path} is damaged: its header is not what {INDEX_FILE} says; {AGAIN}")
