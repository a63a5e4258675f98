"""One worker of a job: files one after the other, with the model loaded once."""

import json
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tidybert.cluster.file_work import FileWork
from tidybert.cluster.input_files import InputFile
from tidybert.cluster.job_record import FileDone, this_version
from tidybert.errors import DataError, InUseError, TidyBertError, param
from tidybert.files.read_report import ReadReport
from tidybert.storage.atomic_files import file_sha256
from tidybert.storage.own_files import make_directory, remove_tree
from tidybert.storage.part_file import Written
from tidybert.system.cores import use_threads

# A worker that was killed with its job lets go of a file within this time.
_LOCK_SECONDS: Final = 30.0


@dataclass(frozen=True)
class Outcome:
    """What became of a file: done, or why not.

    ``is_general`` says that the worker, not the file, is at fault, so that the job stops.
    """

    input: str
    done: FileDone | None = None
    error: str | None = None
    is_general: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Outcome":
        content = json.loads(text)
        done = content.pop("done")
        return cls(**content, done=None if done is None else FileDone(**done))


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
        work: FileWork,
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
        written = self._write(source, target, report, lambda done: self._count(file.name, done))
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
        )

    def _write(
        self, source: Path, target: Path, report: ReadReport, advance: Callable[[int], None]
    ) -> Written:
        """Write the output; waits a while for a worker that is being killed."""
        until = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                # No line of the manifest is about it: a kill came before that.
                if target.is_file():
                    remove_tree(target)
                return self._work.write(self._opened, source, target, report, advance)
            except InUseError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.5)
