"""Texts to an index: only those that it does not hold yet are computed.

A second call with the same texts continues the first one where it was stopped, and a call with more
texts adds those.  A chunk's size depends only on the settings and where the call began to add, so
a stopped call ends with the same bytes as an uninterrupted one.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tidybert.catalog import PRETRAINED
from tidybert.errors import LINE, DataError, DiskError, UsageError, param
from tidybert.files.text_examples import TextExample
from tidybert.files.wording import count_of
from tidybert.inference.embedding import Embedder
from tidybert.inference.vector_files import chunk_size, embedded_chunks
from tidybert.inference.vector_formats import Chunk, Layout
from tidybert.modeling.kernels.nearest_vectors import DTYPES
from tidybert.search.index_files import (
    INDEX_FILE,
    PROGRESS_FILE,
    SCALES_FILE,
    TEXTS_FILE,
    VECTORS_FILE,
    IndexState,
    columns_json,
    read_state,
    text_batch,
    text_batches,
    text_schema,
)
from tidybert.storage.atomic_files import atomic_write_json
from tidybert.storage.growing_file import GrowingFile
from tidybert.storage.output_lock import contents, output_lock
from tidybert.storage.own_files import make_directory, remove_tree
from tidybert.storage.part_file import SECONDS_BETWEEN_SAVES, Written

Computed = Callable[[Iterator[TextExample]], Iterable[Chunk]]
"""From texts to their vectors in chunks; only examples, truncated and vectors are read."""

_COMPARED: Final = (
    *("fingerprint", "pooling", "prompt", "max_seq_length", "dtype", "precision", "dimension"),
)


def write_index(
    embedder: Embedder,
    examples: Iterable[TextExample],
    directory: str | Path,
    *,
    dtype: str = "float32",
    model: str = "",
    computed: Computed | None = None,
    advance: Callable[[int], None] = lambda num_texts: None,
) -> Written:
    """Make ``directory`` an index of the texts, or add those to it that it lacks.

    Args:
        embedder: must normalise; ``model`` is the MODEL that it was opened by.
        examples: all texts, those that the index has at the front, in the same order.
        dtype: float32, float16, or int8 with a scale for each vector.
        computed: gives the vectors of the texts that the index lacks, where others have computed
            them; None computes them here.
        advance: called with the number of texts done.

    Raises UsageError for a directory with other things in it or an index with other settings,
    DataError for other texts than the index has, InUseError where another process writes it, and
    DiskError.
    """
    if dtype not in DTYPES:
        raise UsageError(f"{param('dtype')} {dtype!r}: expected one of {', '.join(DTYPES)}")
    assert embedder.normalize, "an index holds vectors of length 1"
    directory = Path(directory)
    settings = {
        "model": model if model in PRETRAINED else str(Path(model).absolute()),
        "fingerprint": embedder.fingerprint,
        "pooling": embedder.pooling,
        "prompt": embedder.prompt,
        "max_seq_length": embedder.max_seq_length,
        "dtype": dtype,
        "precision": embedder.precision,
        "dimension": embedder.dimension,
    }
    left = iter(examples)
    with output_lock(directory):
        before = _state_in(directory, settings)
        state = before or IndexState(settings)
        _skip_done(left, directory, state)
        advance(state.num_texts)
        first = next(left, None)
        if first is None and before is None:
            raise DataError("there are no texts to index")
        if first is None and state.sha256:
            return Written(state.num_texts, state.num_truncated, state.num_texts)
        with ExitStack() as stack:
            growing = _Growing(directory, state, is_new=before is None, stack=stack)
            if first is not None:
                lacking = _chain(first, left)
                chunks = computed(lacking) if computed else _computed_here(embedder, lacking)
                growing.add(chunks, advance)
            growing.finish()
    return Written(growing.state.num_texts, growing.state.num_truncated, state.num_texts)


def _state_in(directory: Path, settings: dict[str, Any]) -> IndexState | None:
    """How far the index in a directory is; None where no text has been done."""
    make_directory(directory)
    for name in (PROGRESS_FILE, INDEX_FILE):
        if (directory / name).exists():
            state = read_state(directory / name)
            break
    else:
        if contents(directory):
            raise UsageError(
                f"{param('out', directory)} is not empty, and no index was begun there; name a new "
                "directory"
            )
        return None
    if not state.num_texts:
        return None
    other = [name for name in _COMPARED if state.settings[name] != settings[name]]
    if "fingerprint" in other:
        raise UsageError(
            f"{param('out', directory)} has vectors of another model, {state.settings['model']}: "
            "their cosines mean nothing beside those of this one; name a new directory"
        )
    if other:
        shown = ", ".join(param(name, state.settings[name]) for name in other)
        raise UsageError(
            f"{param('out', directory)} was made with {shown}: give the same, or name a new "
            "directory"
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

    def add(self, chunks: Iterable[Chunk], advance: Callable[[int], None]) -> None:
        """Write texts as their vectors come; what is done when an error comes stays."""
        try:
            for chunk in chunks:
                self._append(list(chunk.examples), chunk.vectors, sum(chunk.truncated))
                advance(self.state.num_texts)
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
        _refuse_pairs(examples)
        numbers, scales = rounded(vectors, self.state.settings["dtype"])
        content = {VECTORS_FILE: numbers.tobytes(), TEXTS_FILE: text_batch(examples)}
        if scales is not None:
            content[SCALES_FILE] = scales.tobytes()
        for name, data in content.items():
            self._files[name].write(data)
        self.state = replace(
            self.state,
            num_texts=self.state.num_texts + len(examples),
            num_truncated=self.state.num_truncated + num_truncated,
            text_bytes=self._files[TEXTS_FILE].size,
        )

    def _save(self) -> None:
        for file in self._files.values():
            file.sync()
        self._write(PROGRESS_FILE, self.state)
        self._saved = time.monotonic()

    def _write(self, name: str, state: IndexState) -> None:
        atomic_write_json(self.directory / name, state.contents())


def _computed_here(embedder: Embedder, examples: Iterator[TextExample]) -> Iterator[Chunk]:
    layout = Layout(embedder.dimension, False, "float32")
    size = chunk_size(embedder, layout)
    return embedded_chunks(embedder, examples, layout, first=size, largest=size)


def rounded(
    vectors: npt.NDArray[np.float32], dtype: str
) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32] | None]:
    """(n, d) of the dtype, and for int8 the scales (n,): the largest number of a vector is 127."""
    if dtype != "int8":
        return vectors.astype(dtype), None
    scales = (np.abs(vectors).max(axis=1) / 127).astype(np.float32)
    return np.rint(vectors / np.where(scales > 0, scales, 1)[:, None]).astype(np.int8), scales


def _refuse_pairs(examples: Sequence[TextExample]) -> None:
    if any(one.text_pair is not None for one in examples):
        raise UsageError(
            f"the file has pairs of texts: name the column to search in with {param('text')}; the "
            "other columns are kept beside it"
        )


def _chain(first: TextExample, left: Iterator[TextExample]) -> Iterator[TextExample]:
    yield first
    yield from left
