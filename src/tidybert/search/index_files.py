"""Texts to an index, and its changes: only what it does not hold yet is computed.

A second call with the same texts continues the first one where it was stopped, and a call with more
texts adds those.  A chunk's size depends only on the settings and where the call began to add, so a
stopped call ends with the same bytes as an uninterrupted one.  ``index_format`` has the files.
"""

import dataclasses
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
from msgspec.structs import asdict, replace

from tidybert.catalog import PRETRAINED
from tidybert.errors import LINE, DataError, DiskError, UsageError, param
from tidybert.files.reading import ReadReport
from tidybert.files.rows import count_of, has_lone_surrogate
from tidybert.files.text_examples import TextExample
from tidybert.files.text_files import read_examples
from tidybert.inference.answer_files import Chunk, Layout, chunk_size, embedded_chunks, npy_header
from tidybert.inference.embedding import Embedder
from tidybert.inference.text_jobs import EmbedJob
from tidybert.search.index_format import (
    AGAIN,
    BITS_FILE,
    CHANGES_FILE,
    DOCUMENTS_FILE,
    INDEX_FILE,
    PROGRESS_FILE,
    SCALES_FILE,
    TEXTS_FILE,
    VECTORS_FILE,
    IndexContent,
    IndexSettings,
    IndexState,
    content_of,
    open_index,
    read_state,
    text_batches,
    text_schema,
)
from tidybert.search.nearest_vectors import DTYPES
from tidybert.search.postings import FILES as POSTINGS_FILES
from tidybert.search.postings import Segment, segments_of
from tidybert.search.sign_bits import LEAST_VECTORS, SignBits, sign_bits
from tidybert.storage.journal import Journal, check_settings, is_begun
from tidybert.storage.json_objects import plain_json
from tidybert.storage.output_lock import output_lock
from tidybert.storage.own_files import GrowingFile, remove_tree
from tidybert.storage.part_file import SECONDS_BETWEEN_SAVES, Written
from tidybert.system.reporter import SILENT, Reporter

# The bits are measured again where there are so many times as many vectors.
_GROWN: Final = 1.1
_COPIED_AT_ONCE: Final = 4096
ID_COLUMN: Final = "id"
"""A column of this name has the ids of a new index, if it can."""

Computed = Callable[[Iterator[TextExample]], Iterable[Chunk]]
"""From texts to their vectors in chunks; only examples, truncated and vectors are read."""


def write_index(
    embedder: Embedder,
    examples: Iterable[TextExample],
    directory: str | Path,
    *,
    dtype: str = "float32",
    model: str = "",
    id_column: str = "",
    passages: int = 0,
    passage_stride: int = 0,
    replacing: bool = False,
    words: bool | None = None,
    computed: Computed | None = None,
    reporter: Reporter = SILENT,
) -> Written:
    """Make ``directory`` an index of the texts, or add those to it that it lacks.

    Args:
        id_column, passages, passage_stride: see IndexSettings; texts that ``text_passages`` made.
        replacing: put a text in the place of one with the same id, where they differ; else texts
            begin with those that the index has.
        words: keep postings beside the vectors; an index that has none gets those of all its texts.
            None: as the index has it, and a new one has them.
    """
    if dtype not in DTYPES:
        raise UsageError(f"{param('dtype')} {dtype!r:.60}: expected one of {', '.join(DTYPES)}")
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
        id=id_column,
        passages=passages,
        passage_stride=passage_stride,
    )
    left = _checked(examples, settings)
    with output_lock(directory):
        before = _state_in(directory, settings)
        state = before or IndexState(settings=settings)
        had_words = state.has_words
        if words is False and had_words:
            raise UsageError(
                f"{param('words', False)}: {directory} has words, which stay: name a new directory"
            )
        if words or (before is None and words is None):
            state = state.with_words()
        replaced: deque[int | None] = deque()
        if replacing and before is not None:
            left = _changed(left, content_of(directory, before), replaced)
        else:
            _skip_done(left, directory, state)
            reporter.advance(state.num_texts)
        first = next(left, None)
        if first is None and before is None:
            raise DataError("there are no texts to index")
        if first is None and state.sha256 and state.has_words == had_words:
            return Written(state.num_texts, state.num_truncated, state.num_texts)
        with _growing(directory, state, replaced) as growing:
            if first is not None:
                lacking = chain([first], left)
                if computed is not None:
                    chunks = computed(lacking)
                else:
                    layout = Layout(embedder.dimension, False, "float32")
                    size = chunk_size(embedder, layout)
                    chunks = embedded_chunks(embedder, lacking, layout, first=size, largest=size)
                growing.add(chunks, reporter, state.num_texts if replacing else 0)
            growing.finish(reporter)
    return Written(growing.state.num_texts, growing.state.num_truncated, state.num_texts)


def delete_texts(directory: str | Path, ids: Sequence[str]) -> int:
    """Have the texts with these ids count no more; how many of them did until now.

    Raises UsageError for an id that the index never had; then nothing changes.
    """
    with _changing(directory) as content:
        numbers = content.numbers()
        if unknown := [each for each in dict.fromkeys(ids) if each not in numbers]:
            more = f" and {len(unknown) - 5:,} more" if len(unknown) > 5 else ""
            raise UsageError(
                f"{param('delete')}: {directory} has no text with the id "
                f"{', '.join(unknown[:5])}{more}; nothing was deleted"
            )
        live = set(content.documents[content.is_live].tolist())
        deleted = sorted({numbers[each] for each in ids} & live)
        if deleted:
            with _growing(Path(directory), content.state, deque()) as growing:
                growing.change([(number, -1) for number in deleted])
                growing.finish()
    return len(deleted)


def compact_index(directory: str | Path, reporter: Reporter = SILENT) -> int:
    """Write an index anew without the texts that count no more; how many these were.

    The others are in the order of their places, which are counted anew.
    """
    directory = Path(directory)
    with _changing(directory) as content:
        state = content.state
        if not state.num_changes and not state.num_old_postings:
            return 0
        order = np.flatnonzero(content.is_live)
        if not len(order):
            raise UsageError(f"{directory} has no text that counts: remove the directory instead")
        places = content.places[content.documents[order]]
        order = order[np.argsort(places, kind="stable")]
        # Postings are made anew.
        left_out = {CHANGES_FILE, *POSTINGS_FILES}
        if state.num_bits < state.num_texts:
            left_out.add(BITS_FILE)
        arrays = {name: each for name, each in content.arrays.items() if name not in left_out}
        begun = IndexState(settings=state.settings, generation=state.generation + 1)
        if state.has_words:
            begun = begun.with_words()
        with _growing(directory, begun, deque()) as growing:
            growing.copy(content, arrays, order, np.sort(places))
            growing.state.num_truncated, growing.state.scan = state.num_truncated, state.scan
            growing.finish(reporter)
    return state.num_texts - len(order)


@contextmanager
def _changing(directory: str | Path) -> Iterator[IndexContent]:
    """A finished index, in its lock; UsageError where more of it was begun."""
    directory = Path(directory)
    with output_lock(directory):
        content = open_index(directory)
        path = directory / PROGRESS_FILE
        if path.exists() and read_state(path).num_texts > content.state.num_texts:
            raise UsageError(
                f"{directory} has an unfinished change: the command that began it continues it"
            )
        _clear(directory, content.state)
        yield content


def _clear(directory: Path, state: IndexState) -> None:
    """Remove what counts no more: files of other generations, and of a finished state its progress.

    A kill may have left them.
    """
    if state.sha256:
        remove_tree(directory / PROGRESS_FILE)
    for path in directory.iterdir():
        if state.is_of_another(path.name):
            remove_tree(path)


def _checked(examples: Iterable[TextExample], settings: IndexSettings) -> Iterator[TextExample]:
    """The texts; DataError for a pair, and for an id that is missing or there twice."""
    column = settings.id
    lines: dict[str, int] = {}
    for one in examples:
        if one.text_pair is not None:
            raise UsageError(
                f"the file has pairs of texts: name the column to search in with {param('text')}; "
                "the other columns are kept beside it"
            )
        if column and _begins(one, settings):
            columns = one.columns or {}
            if columns.get(column) in (None, ""):
                known = ", ".join(columns) or "none"
                raise DataError(
                    f"{LINE} {one.row} has no {param('id')}: expected one in the column "
                    f"{column!r}; the columns beside the text are {known}"
                )
            key = str(columns[column])
            if key in lines:
                raise DataError(f"{LINE} {one.row}: the id {key!r} is that of {LINE} {lines[key]}")
            lines[key] = one.row
        yield one


def _begins(one: TextExample, settings: IndexSettings) -> bool:
    """Whether a text, or a passage, begins a document."""
    return not settings.passages or (one.columns or {})["start"] == 0


def _state_in(directory: Path, settings: IndexSettings) -> IndexState | None:
    """How far the index in a directory is; None where no text has been done."""
    state = _begun_in(directory)
    if state is None:
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
    _clear(directory, state)
    return state


def _begun_in(directory: Path) -> IndexState | None:
    """The same, of an index with any settings."""
    names = (INDEX_FILE, PROGRESS_FILE)
    if not is_begun(directory, names, "index"):
        return None
    # A kill may have come between index.json and the end of progress.json.
    found = [read_state(directory / name) for name in names if (directory / name).exists()]
    state = max(found, key=lambda each: each.num_texts)
    return state if state.num_texts else None


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
                    f"since. The index has {text[:60]!r}, the file {one.text[:60]!r}; give "
                    f"{param('replace')}, or a new {param('out')}"
                )
            num_same += 1
    if num_same < state.num_texts:
        raise DataError(
            f"{directory} has {count_of(state.num_texts, 'text')}, and the file only its first "
            f"{num_same:,}: give all of them, or index the file into a new {param('out')}"
        )


def _changed(
    left: Iterator[TextExample], content: IndexContent, replaced: deque[int | None]
) -> Iterator[TextExample]:
    """The texts that an index lacks or has otherwise; ``replaced`` tells whose place each takes.

    It gets one number, or None, for each document that begins.
    """
    settings = content.state.settings
    numbers = content.numbers()
    is_live = np.zeros(len(content.places), dtype=bool)
    is_live[content.documents[content.is_live]] = True
    begins, ends = content.rows
    place = -1

    def next_document(one: TextExample) -> int:
        nonlocal place
        place += _begins(one, settings)
        return place

    for number, group in groupby(left, next_document):
        document = list(group)
        column = settings.id
        key = str((document[0].columns or {})[column]) if column else str(number)
        # One that was deleted has its place still.
        old = numbers.get(key)
        kept = []
        if old is not None and is_live[old]:
            texts = map(content.text, range(int(begins[old]), int(ends[old])))
            kept = [(each["text"], each["columns"]) for each in texts]
        given = [(one.text, columns_json(one)) for one in document]
        if kept and old == len(is_live) - 1 and kept == given[: len(kept)]:
            # A stopped call has written the first passages of it.
            yield from document[len(kept) :]
        elif kept != given:
            replaced.append(old)
            yield from document


class _Growing:
    """The files of an index while they grow."""

    def __init__(
        self, directory: Path, state: IndexState, stack: ExitStack, replaced: deque[int | None]
    ) -> None:
        self.directory, self.state = directory, replace(state, sha256={})
        self._stack, self._replaced = stack, replaced
        self._files: dict[str, GrowingFile] = {}
        self._saved = time.monotonic()
        if not state.num_texts and not state.generation:
            # Before the files: without it they would be somebody else's.
            self._write_state(PROGRESS_FILE)
        for name in state.parts():
            self._file(name)

    def add(self, chunks: Iterable[Chunk], reporter: Reporter, before: int) -> None:
        """Write texts as their vectors come; what is done when an error comes stays."""
        try:
            for chunk in chunks:
                self._append(list(chunk.examples), chunk.vectors, sum(chunk.truncated))
                reporter.advance(self.state.num_texts - before)
                if time.monotonic() - self._saved >= SECONDS_BETWEEN_SAVES:
                    self._save()
        except BaseException:
            # On a full disk what was saved before is still valid.
            with suppress(OSError, DiskError):
                self._save()
            raise

    def change(self, changes: Sequence[tuple[int, int]]) -> None:
        """Note documents that count no more, each with the one in its place, or -1."""
        self._write(CHANGES_FILE, np.array(changes, dtype=np.int64))
        self.state.num_changes += len(changes)

    def copy(
        self,
        content: IndexContent,
        arrays: dict[str, npt.NDArray[Any]],
        order: npt.NDArray[np.int64],
        places: npt.NDArray[np.int64],
    ) -> None:
        """Write what is at these positions of another index, whose places are in order."""
        import pyarrow as pa

        numbers = np.unique(places, return_inverse=True)[1]
        texts = pa.Table.from_batches(content.batches)
        for start in range(0, len(order), _COPIED_AT_ONCE):
            part = slice(start, start + _COPIED_AT_ONCE)
            for name, values in arrays.items():
                rows = numbers[part] if name == DOCUMENTS_FILE else values[order[part]]
                self._write(name, rows)
            (batch,) = texts.take(pa.array(order[part])).combine_chunks().to_batches()
            self._file(TEXTS_FILE).write(bytes(batch.serialize()))
        state = self.state
        state.num_texts = len(order)
        state.num_documents = int(numbers[-1]) + 1 if state.settings.passages else 0
        state.num_bits = len(order) if BITS_FILE in arrays else 0
        state.text_bytes = self._file(TEXTS_FILE).size

    def finish(self, reporter: Reporter = SILENT) -> None:
        """Make the index of the files."""
        self._sync()
        self._add_words(reporter)
        if self.state.num_texts >= LEAST_VECTORS:
            self._add_bits(reporter)
        for name, file in self._files.items():
            if name != TEXTS_FILE:
                file.replace_head(npy_header(*self.state.arrays()[name]))
        self._sync()
        self.state = self.state.with_hashes(self.directory)
        self._write_state(INDEX_FILE)
        _clear(self.directory, self.state)

    def _add_words(self, reporter: Reporter) -> None:
        """Write the postings of texts that no segment has, and again those of a short segment."""
        state = self.state
        if not isinstance(state.segments, list):
            return
        last = state.segments[-1] if state.segments else Segment()
        kept = list(state.segments)
        while kept and not kept[-1].stays(state.num_texts):
            kept.pop()
        state.segments, first = kept, kept[-1].texts[1] if kept else 0
        telling = reporter.of_stage("counting words", state.num_texts)

        def texts() -> Iterator[str]:
            done = 0
            for batch in text_batches(self.directory, state):
                yield from batch["text"].to_pylist()
                done += batch.num_rows
                telling.advance(done)

        for count, rows in segments_of(islice(texts(), first, None)):
            for name, values in rows.items():
                self._write(name, values)
            last = last.next(first, count, rows)
            first = last.texts[1]
            kept.append(last)
        self._sync()

    def _add_bits(self, reporter: Reporter) -> None:
        """Write the bits of new vectors, and measure how many candidates they need."""
        state = self.state
        telling = reporter.of_stage("signs of vectors", state.num_texts)
        arrays = content_of(self.directory, state).arrays
        for words in sign_bits(arrays[VECTORS_FILE], state.num_bits):
            self._write(BITS_FILE, words)
            state.num_bits += len(words)
            telling.advance(state.num_bits)
        self._sync()
        if state.scan is None or state.num_texts > _GROWN * state.scan.vectors:
            bits = SignBits(content_of(self.directory, state).arrays[BITS_FILE])
            state.scan = bits.measured(arrays[VECTORS_FILE], arrays.get(SCALES_FILE))

    def _append(
        self, examples: list[TextExample], vectors: npt.NDArray[np.float32], num_truncated: int
    ) -> None:
        state = self.state
        numbers, scales = rounded(vectors, state.settings.dtype)
        self._write(VECTORS_FILE, numbers)
        self._file(TEXTS_FILE).write(text_batch(examples))
        if scales is not None:
            self._write(SCALES_FILE, scales)
        begins = np.array([_begins(one, state.settings) for one in examples])
        first = state.num_documents if state.settings.passages else state.num_texts
        documents = first - 1 + np.cumsum(begins)
        if state.settings.passages:
            self._write(DOCUMENTS_FILE, documents)
            state.num_documents = int(documents[-1]) + 1
        if self._replaced:
            old = [self._replaced.popleft() for _ in range(int(begins.sum()))]
            pairs = zip(old, documents[begins].tolist(), strict=True)
            if changes := [(before, new) for before, new in pairs if before is not None]:
                self.change(changes)
        state.num_texts += len(examples)
        state.num_truncated += num_truncated
        state.text_bytes = self._file(TEXTS_FILE).size

    def _file(self, name: str) -> GrowingFile:
        if name not in self._files:
            path = self.directory / self.state.file(name)
            if (part := self.state.parts().get(name)) is None:
                # A kill before the first save left it.
                remove_tree(path)
            self._files[name] = GrowingFile(path, None if part is None else part[1])
            self._stack.callback(self._files[name].close)
            if part is None and name == TEXTS_FILE:
                self._files[name].write(bytes(text_schema().serialize()))
            elif part is None:
                dtype, shape = self.state.arrays()[name]
                self._files[name].write(npy_header(dtype, (0, *shape[1:])))
        return self._files[name]

    def _write(self, name: str, rows: npt.NDArray[Any]) -> None:
        self._file(name).write(np.ascontiguousarray(rows).tobytes())

    def _sync(self) -> None:
        for file in self._files.values():
            file.sync()

    def _save(self) -> None:
        self._sync()
        self._write_state(PROGRESS_FILE)
        self._saved = time.monotonic()

    def _write_state(self, name: str) -> None:
        Journal(self.directory / name, IndexState, AGAIN).write(self.state)


@contextmanager
def _growing(directory: Path, state: IndexState, replaced: deque[int | None]) -> Iterator[_Growing]:
    with ExitStack() as stack:
        yield _Growing(directory, state, stack, replaced)


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
    joins: str = ""
    """The fingerprint of the index to which the texts are added."""
    id: str | None = None
    replacing: bool = False
    words: bool | None = None
    name: ClassVar = "index"
    suffix: ClassVar = ".npy"

    def joining(self, target: Path) -> "IndexJob":
        """The same job, which embeds as the index in a directory was made, if there is one."""
        state = _begun_in(target)
        return (
            self if state is None else dataclasses.replace(self, joins=state.settings.fingerprint)
        )

    def load(self) -> Embedder:
        opened = super().load()
        return opened.matching(self.joins) if self.joins else opened

    @contextmanager
    def alone(self, target: Path, resume: bool) -> Iterator[Any]:
        with output_lock(target) as lock:
            yield lock

    def examples(self, opened: Any, source: str | Path, report: ReadReport) -> Iterator[Any]:
        """The texts of a file with the other columns of their rows."""
        reader = read_examples.with_details(keep_columns=True)
        texts = reader(
            source, self.read, need_label=False, skip_bad_rows=self.skip_bad_rows, report=report
        )
        return self.parts(opened, texts)

    def with_ids(self, source: str, target: Path, note: Callable[[str], None]) -> "IndexJob":
        """The same job, where it names no column of ids, with the one that it is to take.

        It is that of an index that is there.  A new one of a file takes a column ``id`` whose
        values are all there and distinct, and says so.
        """
        if self.id is not None:
            return self
        if (state := _begun_in(target)) is not None:
            return dataclasses.replace(self, id=state.settings.id or None)
        if not Path(source).is_file():
            return self
        seen: set[str] = set()
        reader = read_examples.with_details(keep_columns=True)
        for one in reader(source, self.read, need_label=False, skip_bad_rows=self.skip_bad_rows):
            value = (one.columns or {}).get(ID_COLUMN)
            if value in (None, "") or str(value) in seen:
                return self
            seen.add(str(value))
        if not seen:
            return self
        note(f"the column {ID_COLUMN} has another value in each row, so these are the texts' ids")
        return dataclasses.replace(self, id=ID_COLUMN)

    def layout(self, opened: Embedder) -> Layout:
        # The places are beside the texts.
        return dataclasses.replace(super().layout(opened), passages=None)

    def write(
        self, opened: Embedder, texts: Iterable[Any], target: Path, resume: bool, reporter: Reporter
    ) -> Written:
        given = self.index_options()
        return write_index(opened, texts, target, **given, reporter=reporter)

    def index_options(self) -> dict[str, Any]:
        """What ``write_index`` is called with."""
        return {
            "dtype": self.stored,
            "model": self.model,
            "id_column": self.id or "",
            "passages": self.passages or 0,
            "passage_stride": self.stride,
            "replacing": self.replacing,
            "words": self.words,
        }

    def write_file(
        self, opened: Any, source: Path, target: Path, report: ReadReport, reporter: Reporter
    ) -> Written:
        texts = super().examples(opened, source, report)
        return super().write(opened, texts, target, resume=True, reporter=reporter)
