"""One way for all commands that do a job on a file of texts: to stdout, into a file, on a cluster.

Their files declare flags, and how an answer is shown.
"""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidybert.cli.flags import ClusterFlags
from tidybert.cli.output import note, note_reading, print_answers, resumable
from tidybert.cli.progress import shown_texts
from tidybert.errors import LINE, DataError, UsageError
from tidybert.files.rows import count_of, skipped_rows
from tidybert.system.terminal import clock

if TYPE_CHECKING:
    from tidybert.cluster.file_job import JobReport
    from tidybert.inference.text_jobs import AnswerJob, TextJob
    from tidybert.storage.part_file import Written

Examples = Callable[[Any], Iterator[Any]]
"""The texts, read from the beginning; takes a ReadReport."""


@dataclass(frozen=True)
class TextsDone:
    """What a job has done in this process: the opened model, counts, and the seconds it took."""

    opened: Any
    written: "Written"
    seconds: float

    def note(self, out: Path | None, more: str = "") -> None:
        """Note the texts and the rate; ``more`` ends the line."""
        written = self.written
        rate = (written.num_texts - written.num_resumed) / self.seconds if self.seconds else 0
        shown = f" ({rate:,.0f} texts/s)" if self.seconds else ""
        note(
            f"{'' if out is None else f'{out}: '}{written.num_texts:,} texts in "
            f"{clock(self.seconds)}{shown}, {written.num_truncated:,} truncated{more}"
        )


def run_text_job(
    job: "TextJob",
    file: str,
    given: Any,
    title: str,
    *,
    examples: Callable[[Any], Iterator[Any]] | None = None,
    show: Callable[[Any, Iterator[Any]], tuple[int, int]] | None = None,
) -> TextsDone | None:
    """Do a job on a file, or have a cluster do it on many; None where a cluster did it."""
    from tidybert.files.reading import ReadReport
    from tidybert.storage.part_file import Written

    if given.cluster is not None:
        from tidybert.cluster.file_job import run_job

        run_on_cluster(partial(run_job, job), file, given.out, given, title)
        return None
    refuse_cluster_flags(given)
    out: Path | None = given.out
    resume = getattr(given, "resume", False)
    if out is None and resume:
        raise UsageError("--resume needs --out: standard output keeps nothing to continue")
    # A second process is refused before it loads the model.
    with nullcontext() if out is None else job.alone(out, resume):
        opened = job.load()

        def texts(report: ReadReport) -> Iterator[Any]:
            return job.examples(opened, file, report) if examples is None else examples(opened)

        report = ReadReport()
        begun = time.monotonic()
        if out is None:
            assert show is not None
            written = Written(*show(opened, texts(report)), 0)
        else:
            # A first reading finds bad rows before the work, and counts the texts.
            total = sum(1 for _ in texts(report)) if Path(file).is_file() else None
            left = texts(report if total is None else ReadReport())
            stopped = resumable(out, resume) if hasattr(given, "resume") else nullcontext()
            with stopped, shown_texts(title, total) as reporter:
                written = job.write(opened, left, out, resume=resume, reporter=reporter)
        seconds = time.monotonic() - begun
    note_reading(report, written.num_truncated, written.num_texts, job.cut(opened))
    return TextsDone(opened, written, seconds)


def answer_texts(
    job: "AnswerJob",
    file: str | None,
    given: Any,
    title: str,
    show: Callable[[dict[str, Any]], None],
    *,
    typed: Sequence[tuple[str, str | None]] = (),
) -> TextsDone | None:
    """Do a job on a file, or on texts of the command line, and show each answer as it comes."""
    from tidybert.files.text_examples import TextExample
    from tidybert.files.text_files import read_examples

    name = file or ""
    if given.cluster is None and file is not None:
        read_examples.formats.check(file, job.read.format)
    examples = [TextExample(*texts, None, row) for row, texts in enumerate(typed, 1)]
    try:
        done = run_text_job(
            job,
            name,
            given,
            title,
            examples=None if file is not None else lambda _: iter(examples),
            show=lambda opened, texts: print_answers(
                partial(job.stream, opened), texts, name, show
            ),
        )
    except DataError as error:
        if not error.message.startswith(LINE):
            raise
        at = error.message if file is not None else error.message.replace(LINE, "text")
        raise DataError(f"{name}{': ' if name else ''}{at}") from error
    if done is not None and given.out is not None:
        done.note(given.out)
    return done


def run_on_cluster(
    do: "Callable[..., JobReport]", file: str, out: Path | None, given: ClusterFlags, title: str
) -> None:
    """Have ``do`` do each file that ``file`` names, and note what was done.

    ``do`` takes the files, the folder and the named arguments of ``run_job``; raises as that.
    """
    from tidybert.cluster.input_files import input_files
    from tidybert.files.text_files import SUFFIXES

    if out is None:
        raise UsageError("--cluster needs --out: a folder for the files that it writes")
    if re.match("[a-z0-9]+:/", str(out)):
        raise UsageError(f"--out {out}: expected a folder on a disk that every machine sees")
    if getattr(given, "threads", None) is not None:
        raise UsageError("--threads: a worker of --cluster has one thread; give --cluster-workers")
    if file in ("", "-"):
        raise UsageError("--cluster reads files: name a folder, a pattern or a file")
    files = input_files(file, SUFFIXES)
    begun = time.monotonic()
    with shown_texts(title) as reporter:
        report = do(
            files,
            out,
            cluster=given.cluster,
            num_workers=given.cluster_workers,
            on_error=given.on_error,
            reporter=replace(reporter, begun=note_begin),
        )
    seconds = time.monotonic() - begun
    for each in report.done:
        if each.num_skipped:
            note(f"{each.input}: {skipped_rows(each.reasons)}")
    truncated = sum(each.num_truncated for each in report.done)
    before = f"; {len(report.before):,} were done before" if report.before else ""
    note(
        f"{out}: {report.num_rows:,} rows of {count_of(len(report.done), 'file')} in "
        f"{clock(seconds)} ({report.num_rows / seconds:,.0f} rows/s), {truncated:,} truncated"
        f"{before}"
    )


def refuse_cluster_flags(given: ClusterFlags) -> None:
    """Raise UsageError for flags that only --cluster has a use for."""
    for flag, value, default in (
        ("--cluster-workers", given.cluster_workers, None),
        ("--on-error", given.on_error, "stop"),
    ):
        if value != default:
            raise UsageError(f"{flag} is for --cluster, which is not given")


def note_begin(num_done: int, num_files: int) -> None:
    """Note how many files there are, before the cluster starts."""
    if num_done < num_files:
        done = f", {num_done:,} of them done before" if num_done else ""
        note(f"{count_of(num_files, 'file')}{done}; the cluster starts")
