"""An index of many files: workers compute the vectors of each, and this process joins them.

The vectors of a file are a part beside the index until the index is whole.  Each text keeps the
name of its file in the column "file".
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Final

import numpy as np

from tidybert.cluster.file_job import JobReport, OnError, run_job
from tidybert.cluster.input_files import InputFile
from tidybert.files.reading import ReadReport
from tidybert.files.text_examples import TextExample
from tidybert.inference.answer_files import Chunk
from tidybert.inference.embedding import Embedder
from tidybert.search.index_files import IndexJob, write_index
from tidybert.search.index_format import INDEX_FILE, open_index
from tidybert.storage.opening import present
from tidybert.storage.output_lock import output_lock
from tidybert.storage.own_files import remove_tree
from tidybert.system.reporter import SILENT, Reporter

FILE_COLUMN: Final = "file"
_CHUNK: Final = 1024


def index_files(
    work: IndexJob,
    files: Sequence[InputFile],
    directory: Path,
    *,
    cluster: str,
    num_workers: int | None = None,
    on_error: OnError = "stop",
    reporter: Reporter = SILENT,
) -> JobReport:
    """Make ``directory`` an index of the texts of all files, or add those of the last files to it.

    The same call goes on where a stopped one left off, and ends with the same bytes.
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
                reporter=reporter,
            )
        cut = {each.input: each.num_truncated for each in (*report.before, *report.done)}
        opened = work.load()
        texts = _Texts(files, work, opened, cut)
        write_index(
            opened,
            texts.examples(),
            directory,
            **work.index_options(),
            computed=lambda left: texts.chunks(left, parts, work.suffix),
        )
        remove_tree(parts)
    return report


def _files_in(directory: Path) -> set[str]:
    """The names of the files whose texts a finished index has."""
    if not present(directory / INDEX_FILE):
        return set()
    return {
        json.loads(columns).get(FILE_COLUMN, "")
        for batch in open_index(directory).batches
        for columns in batch["columns"].to_pylist()
    }


class _Texts:
    """The texts of files in order, and their vectors from the parts."""

    def __init__(
        self,
        files: Sequence[InputFile],
        work: IndexJob,
        opened: Embedder,
        num_truncated: Mapping[str, int],
    ) -> None:
        self._files, self._work, self._opened = files, work, opened
        self._num_truncated = num_truncated
        # By file, how many of its texts came before the one that was read last.
        self._places: dict[str, int] = {}

    def examples(self) -> Iterator[TextExample]:
        for file in self._files:
            with file.here() as source:
                found = self._work.examples(self._opened, source, ReadReport())
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
