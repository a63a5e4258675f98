"""A job over many files: those that are done stay, the others go to a cluster's workers."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, Literal

import numpy as np

from tidybert.cluster.input_files import FileDone, InputFile, add_done, begin_manifest, job_line
from tidybert.cluster.ray_engine import RayCluster, ray_cluster
from tidybert.errors import DataError, UsageError, param
from tidybert.files.reading import ReadReport
from tidybert.files.rows import count_of
from tidybert.files.text_examples import TextExample
from tidybert.inference.answer_files import Chunk
from tidybert.inference.embedding import Embedder
from tidybert.inference.text_jobs import FileJob
from tidybert.search.index_files import IndexJob, write_index
from tidybert.search.index_format import INDEX_FILE, open_index
from tidybert.storage.opening import present
from tidybert.storage.output_lock import output_lock
from tidybert.storage.own_files import remove_tree
from tidybert.system.reporter import SILENT, Reporter

ON_ERROR: Final = ("stop", "continue")
OnError = Literal["stop", "continue"]
_SHOWN: Final = 10
_SECONDS: Final = 0.5


@dataclass
class JobReport:
    """The files of a job, by what became of them.

    Args:
        done: the files that this run did.
        before: the files that an earlier run had done.
        failed: the message for each file that failed, by name.
    """

    done: list[FileDone] = field(default_factory=list)
    before: list[FileDone] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def num_rows(self) -> int:
        return sum(each.num_rows for each in self.done)


def run_job(
    work: FileJob,
    files: Sequence[InputFile],
    directory: Path,
    *,
    cluster: str,
    num_workers: int | None = None,
    on_error: OnError = "stop",
    reporter: Reporter = SILENT,
) -> JobReport:
    """Do each file, and write its output and a line of manifest.jsonl into ``directory``.

    The same call goes on where a stopped one left off, and ends with the same bytes.
    """
    if on_error not in ON_ERROR:
        raise UsageError(f"{param('on_error', on_error)}: expected one of {', '.join(ON_ERROR)}")
    with output_lock(directory):
        job = job_line(work.name, work.fingerprint(), work.settings())
        noted = begin_manifest(directory, job)
        report, fresh = JobReport(), []
        for file in files:
            done = noted.get(file.name)
            if done is not None and _is_unchanged(file, done, directory):
                report.before.append(done)
            else:
                fresh.append((file, done))
        reporter.begun(len(report.before), len(files))
        if fresh:
            on_gpu = str(work.options.get("device", "auto")).startswith("cuda")
            with ray_cluster(cluster) as engine, _polled(engine, reporter):
                num = min(engine.num_workers(num_workers, on_gpu=on_gpu), len(fresh))
                for outcome in engine.outcomes(work, job, directory, fresh, num, on_gpu=on_gpu):
                    if outcome.done is not None:
                        add_done(directory, [outcome.done])
                        report.done.append(outcome.done)
                        continue
                    assert outcome.error is not None
                    if outcome.is_general or on_error == "stop":
                        raise DataError(outcome.error)
                    report.failed[outcome.input] = outcome.error
    if report.failed:
        num = len(report.failed)
        lines = [
            f"{count_of(num, 'file')} failed, and {len(files) - num:,} are done in {directory}:",
            *list(report.failed.values())[:_SHOWN],
            *([f"and {num - _SHOWN:,} more"] if num > _SHOWN else []),
            "The same command does the failed ones again",
        ]
        raise DataError("\n".join(lines))
    return report


def _is_unchanged(file: InputFile, done: FileDone, directory: Path) -> bool:
    """Whether a file and its output look as before; else a worker compares their hashes."""
    if (file.num_bytes, file.state) != (done.input_bytes, done.input_state):
        return False
    output = directory / done.output
    return output.is_file() and output.stat().st_size == done.output_bytes


@contextmanager
def _polled(engine: RayCluster, reporter: Reporter) -> Iterator[None]:
    """Within the block, a thread asks for the rows that are done and hands the number on."""
    ended = Event()

    def ask() -> None:
        while not ended.wait(_SECONDS):
            reporter.advance(engine.rows_done())

    thread = Thread(target=ask, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


# An index of many files: workers compute the vectors of each, and this process joins them.
#
# The vectors of a file are a part beside the index until the index is whole.  Each text keeps the
# name of its file in the column "file".

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
