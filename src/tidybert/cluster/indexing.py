"""An index of many files: workers compute the vectors of each, and this process joins them.

The vectors of a file are a part beside the index until the index is whole.  Each text keeps the
name of its file in the column "file".
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, islice
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np

from tidybert.cluster.file_job import JobReport, OnError, run_job
from tidybert.cluster.file_work import EmbedWork
from tidybert.cluster.input_files import InputFile
from tidybert.files.read_options import ReadOptions
from tidybert.files.text_examples import TextExample
from tidybert.files.text_files import read_examples
from tidybert.inference.vector_formats import Chunk
from tidybert.search.index_files import INDEX_FILE, open_state, text_batches
from tidybert.search.index_writer import write_index
from tidybert.storage.opening import present
from tidybert.storage.output_lock import output_lock
from tidybert.storage.own_files import remove_tree

FILE_COLUMN: Final = "file"
_CHUNK: Final = 1024


class IndexWork(EmbedWork):
    """The vectors of a file alone, to be mapped into memory."""

    name: ClassVar = "index"
    suffix: ClassVar = ".npy"


def index_files(
    work: IndexWork,
    files: Sequence[InputFile],
    directory: Path,
    *,
    dtype: str = "float32",
    cluster: str,
    num_workers: int | None = None,
    on_error: OnError = "stop",
    begun: Callable[[int, int], None] = lambda num_done, num_files: None,
    advance: Callable[[int], None] = lambda num_rows: None,
) -> JobReport:
    """Make ``directory`` an index of the texts of all files, or add those of the last files to it.

    The same call goes on where a stopped one left off, and ends with the same bytes.  Returns what
    the workers did.  Arguments and errors as ``run_job`` and ``write_index``.
    """
    parts = directory.with_name(f"{directory.name}.parts")
    with output_lock(directory):
        # Parts of files that the index has are gone.
        known = set() if present(parts) else _files_in(directory)
        lacking = [file for file in files if file.name not in known]
        report = JobReport()
        if lacking:
            report = run_job(
                work,
                lacking,
                parts,
                cluster=cluster,
                num_workers=num_workers,
                on_error=on_error,
                begun=begun,
                advance=advance,
            )
        cut = {each.input: each.num_truncated for each in (*report.before, *report.done)}
        texts = _Texts(files, work.read, work.skip_bad_rows, cut)
        write_index(
            work.load(),
            texts.examples(),
            directory,
            dtype=dtype,
            model=work.model,
            computed=lambda left: texts.chunks(left, parts, work.suffix),
        )
        remove_tree(parts)
    return report


def _files_in(directory: Path) -> set[str]:
    """The names of the files whose texts a finished index has."""
    if not present(directory / INDEX_FILE):
        return set()
    state = open_state(directory)
    return {
        json.loads(columns).get(FILE_COLUMN, "")
        for batch in text_batches(directory, state)
        for columns in batch["columns"].to_pylist()
    }


class _Texts:
    """The texts of files in order, and their vectors from the parts."""

    def __init__(
        self,
        files: Sequence[InputFile],
        read: ReadOptions,
        skip_bad_rows: bool,
        num_truncated: Mapping[str, int],
    ) -> None:
        self._files, self._read, self._skip = files, read, skip_bad_rows
        self._num_truncated = num_truncated
        # By file, how many of its texts came before the one that was read last.
        self._places: dict[str, int] = {}

    def examples(self) -> Iterator[TextExample]:
        reader = read_examples.with_details(keep_columns=True)
        for file in self._files:
            with file.here() as source:
                found = reader(source, self._read, need_label=False, skip_bad_rows=self._skip)
                for place, one in enumerate(found):
                    self._places[file.name] = place
                    columns: Mapping[str, Any] = one.columns or {}
                    yield replace(one, columns={FILE_COLUMN: file.name, **columns})

    def chunks(self, left: Iterator[TextExample], parts: Path, suffix: str) -> Iterator[Chunk]:
        """The texts that are left, with their vectors; the first file may have begun before."""
        for name, texts in groupby(left, lambda one: str((one.columns or {})[FILE_COLUMN])):
            vectors = np.load(parts / f"{name}{suffix}", mmap_mode="r")
            place = self._places[name]
            while some := list(islice(texts, _CHUNK)):
                rows = np.array(vectors[place : place + len(some)])
                assert len(rows) == len(some), f"{name}: a vector for each text"
                # Only their number counts.
                cut = [True] * self._num_truncated[name] if not place else []
                yield Chunk(some, [], cut, rows, None)
                place += len(some)
