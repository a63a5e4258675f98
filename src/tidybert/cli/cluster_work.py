"""predict, embed and index with --cluster: many files, workers, and a report."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tidybert.cli.flags import ClusterFlags
from tidybert.cli.output import clock, note
from tidybert.cli.progress import shown_texts
from tidybert.errors import UsageError
from tidybert.files.rows import count_of

if TYPE_CHECKING:
    from tidybert.cluster.file_job import JobReport


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
    if file == "-":
        raise UsageError("--cluster reads files: name a folder, a pattern or a file")
    files = input_files(file, SUFFIXES)
    begun = time.monotonic()
    with shown_texts(title) as advance:
        report = do(
            files,
            out,
            cluster=given.cluster,
            num_workers=given.cluster_workers,
            on_error=given.on_error,
            begun=note_begin,
            advance=advance,
        )
    seconds = time.monotonic() - begun
    for each in report.done:
        if each.num_skipped:
            note(f"{each.input}: {count_of(each.num_skipped, 'row')} skipped")
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
