"""Ray, started or joined, and its actors: workers that take a file each, and then the next.

Ray places workers and restarts those that die.  Ray Data would do this too; its import and its own
actors take longer to start than some hundred megabytes of a corpus to read.
"""

import os
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec

from tidybert.cluster.input_files import FileDone, InputFile, this_version
from tidybert.errors import DataError, InUseError, TidyBertError, UsageError, param
from tidybert.files.reading import ReadReport
from tidybert.inference.text_jobs import FileJob
from tidybert.storage.atomic_files import file_sha256
from tidybert.storage.own_files import make_directory, remove_tree
from tidybert.storage.part_file import Written
from tidybert.system.cores import use_threads
from tidybert.system.reporter import Reporter

# One worker of a job: files one after the other, with the model loaded once.

# A worker that was killed with its job lets go of a file within this time.
_LOCK_SECONDS: Final = 30.0


class Outcome(msgspec.Struct, frozen=True):
    """What became of a file: done, or why not.

    ``is_general`` says that the worker, not the file, is at fault, so that the job stops.
    """

    input: str
    done: FileDone | None = None
    error: str | None = None
    is_general: bool = False


class FileWorker:
    """Does files of a job.

    Args:
        work: what to do with each.
        expected: tidybert's version and the model's fingerprint, as the job's first line has them.
        directory: the folder of the outputs, under the same name on each machine.
        num_threads: threads that compute.
        count: called with a file's name and how many of its rows are done.
    """

    def __init__(
        self,
        work: FileJob,
        expected: Mapping[str, str],
        directory: Path,
        num_threads: int = 1,
        count: Callable[[str, int], None] = lambda name, num_rows: None,
    ) -> None:
        use_threads(num_threads)
        self._work, self._expected, self._directory = work, expected, directory
        self._count = count
        self._opened: Any = None

    def __call__(self, file: InputFile, before: FileDone | None = None) -> Outcome:
        """Do a file; ``before`` is what an earlier run noted about it."""
        try:
            self._open()
        except TidyBertError as error:
            where = f"the worker on {socket.gethostname()}"
            return Outcome(file.name, error=f"{where}: {error.message}", is_general=True)
        try:
            with file.here() as source:
                try:
                    return Outcome(file.name, self._done(file, source, before))
                except TidyBertError as error:
                    # A copy has another name.
                    message = error.message.replace(str(source), file.path)
                    return Outcome(file.name, error=message)
        except TidyBertError as error:
            return Outcome(file.name, error=error.message)

    def _open(self) -> None:
        """Load the model, and compare it with the job's; raises TidyBertError."""
        if self._opened is not None:
            return
        if (version := this_version()) != self._expected["tidybert"]:
            raise DataError(
                f"it has tidybert {version}, and the job was begun by "
                f"{self._expected['tidybert']}; install the same version on each machine"
            )
        opened = self._work.load()
        if opened.fingerprint != self._expected["model"]:
            raise DataError(
                f"its {self._work.model} has other weights, another vocabulary or other settings "
                "than the job's; copy the same directory to each machine"
            )
        self._opened = opened

    def _done(self, file: InputFile, source: Path, before: FileDone | None) -> FileDone:
        output = f"{file.name}{self._work.suffix}"
        target = self._directory / output
        input_sha256 = file_sha256(source)
        if before is not None:
            if input_sha256 != before.input_sha256:
                raise DataError(
                    f"{source} has changed since {target} was made: remove {target} and the line "
                    f"about it in the manifest, or name a new {param('out')}"
                )
            if target.is_file() and file_sha256(target) == before.output_sha256:
                return before
        make_directory(target.parent)
        report = ReadReport()
        counted = Reporter(advance=lambda done: self._advance(file.name, done))
        written = self._write(source, target, report, counted)
        if file_sha256(source) != input_sha256:
            remove_tree(target)
            raise DataError(f"{source} changed while it was read; run the same command again")
        return FileDone(
            input=file.name,
            input_bytes=file.num_bytes,
            input_state=file.state,
            input_sha256=input_sha256,
            output=output,
            output_bytes=target.stat().st_size,
            output_sha256=file_sha256(target),
            num_rows=written.num_texts,
            num_skipped=report.num_problems,
            num_truncated=written.num_truncated,
            reasons=dict(report.reasons),
        )

    def _advance(self, name: str, num_rows: int) -> None:
        self._count(name, num_rows)
        if "torch" in sys.modules:
            from tidybert.system.cores import return_freed_memory

            # What passes keep for the next ones is in pieces, and grows with every new length.
            return_freed_memory()

    def _write(self, source: Path, target: Path, report: ReadReport, reporter: Reporter) -> Written:
        """Write the output; waits a while for a worker that is being killed."""
        until = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                # No line of the manifest is about it: a kill came before that.
                if target.is_file():
                    remove_tree(target)
                return self._work.write_file(self._opened, source, target, report, reporter)
            except InUseError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.5)


LOCAL: Final = "local"
# A file that kills its worker so often is at fault itself.
_TRIES: Final = 5

Item = tuple[InputFile, FileDone | None]


@contextmanager
def ray_cluster(address: str) -> "Iterator[RayCluster]":
    """Join the cluster at an address, or with "local" start one on this machine, and leave it.

    A program that has joined one by itself stays in it.
    """
    if address == LOCAL:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        import ray
    except ImportError as error:
        raise UsageError(
            f"{param('cluster')} needs Ray: pip install 'tidybert[ray]' ({error})"
        ) from None
    if ray.is_initialized():
        yield RayCluster(ray)
        return
    more: dict[str, Any] = {"include_dashboard": False} if address == LOCAL else {}
    try:
        ray.init(address, logging_level="error", log_to_driver=False, **more)
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise UsageError(
            f"{param('cluster', address)}: no Ray cluster answers there ({reason}); give its "
            f"address, auto on one of its machines, or {LOCAL}"
        ) from None
    try:
        yield RayCluster(ray)
    finally:
        ray.shutdown()


class RayCluster:
    """A running cluster."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray

    @cached_property
    def _count(self) -> Any:
        return self._ray.remote(num_cpus=0)(_Count).remote()

    def num_workers(self, wanted: int | None, *, on_gpu: bool) -> int:
        """How many workers to start: those wanted, or one for each CPU, or GPU, of the cluster."""
        unit = "GPU" if on_gpu else "CPU"
        most = int(self._ray.cluster_resources().get(unit, 0))
        if most < (wanted or 1):
            flag = param("cluster_workers", wanted or 1)
            raise UsageError(f"the cluster has {most} {unit}s, and {flag} needs one for each")
        return wanted or most

    def rows_done(self) -> int:
        """The rows that workers have done of all files so far."""
        return int(self._ray.get(self._count.total.remote()))

    def results(
        self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]
    ) -> Iterator[Any]:
        """What a function gives for each of the arguments, computed on the cluster, in order."""
        task = self._ray.remote(function)
        for each in [task.remote(*given) for given in arguments]:
            yield self._ray.get(each)

    def outcomes(
        self,
        work: FileJob,
        expected: Mapping[str, str],
        directory: Path,
        items: Sequence[Item],
        num_workers: int,
        *,
        on_gpu: bool,
    ) -> Generator[Outcome, None, None]:
        """What became of each file, as they are done.

        A worker that dies is replaced, and its file begins again.
        """
        ray = self._ray
        actor = ray.remote(_RayWorker).options(
            num_cpus=0 if on_gpu else 1,
            num_gpus=1 if on_gpu else 0,
            max_restarts=-1,
            max_task_retries=-1,
            scheduling_strategy="SPREAD",
        )
        given = work, dict(expected), directory, self._count
        workers = [actor.remote(*given) for _ in range(num_workers)]
        # A worker takes files once it has begun: the cluster may have no room for it yet.
        worker_of = {each.__ray_ready__.remote(): each for each in workers}
        left, num_left = iter(items), len(items)
        try:
            while num_left:
                (ready,), _ = ray.wait(list(worker_of))
                worker, outcome = worker_of.pop(ready), ray.get(ready)
                for item in islice(left, 1):
                    worker_of[worker.outcome.remote(*item)] = worker
                if isinstance(outcome, Outcome):
                    num_left -= 1
                    yield outcome
        except ray.exceptions.RayTaskError:
            # A mistake of ours keeps its traceback.
            raise
        except ray.exceptions.RayError as error:
            reason = str(error).strip().partition("\n")[0]
            raise DataError(
                f"the cluster stopped in the middle ({reason}); the same command goes on"
            ) from error
        finally:
            for each in workers:
                ray.kill(each)


class _RayWorker:
    """FileWorker as an actor of Ray."""

    def __init__(
        self, work: FileJob, expected: Mapping[str, str], directory: Path, count: Any
    ) -> None:
        self._count = count
        self._worker = FileWorker(work, expected, directory, count=count.set.remote)

    def outcome(self, file: InputFile, before: FileDone | None) -> Outcome:
        import ray

        if ray.get(self._count.begin.remote(file.name)) <= _TRIES:
            return self._worker(file, before)
        return Outcome(
            file.name,
            error=f"{file.path}: {_TRIES} workers died at it, perhaps for lack of memory; give "
            f"fewer {param('cluster_workers')}, or split the file",
        )


class _Count:
    """The rows done of each file; a file that begins again counts once."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._begun: Counter[str] = Counter()

    def begin(self, name: str) -> int:
        """How often a file has begun, this time among them."""
        self._begun[name] += 1
        return self._begun[name]

    def set(self, name: str, num_rows: int) -> None:
        self._rows[name] = num_rows

    def total(self) -> int:
        return sum(self._rows.values())
