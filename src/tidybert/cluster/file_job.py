"""A job over many files: those that are done stay, the others go to a cluster's workers."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Final, Literal

from tidybert.cluster.input_files import FileDone, InputFile, add_done, begin_manifest, job_line
from tidybert.cluster.ray_engine import RayCluster, ray_cluster
from tidybert.errors import DataError, UsageError, param
from tidybert.files.rows import count_of
from tidybert.inference.text_jobs import FileJob
from tidybert.storage.output_lock import output_lock
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
                found = engine.outcomes(work, job, directory, fresh, num, on_gpu=on_gpu)
                with closing(found) as outcomes:
                    for outcome in outcomes:
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
