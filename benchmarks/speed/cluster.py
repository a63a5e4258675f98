"""Time a job over many files on a local Ray beside one process, and check the plan for N workers.

    python -m benchmarks cluster --texts 20000 --files 10 --rounds 3
    python -m benchmarks cluster --texts 200000 --characters 60 --rounds 1
    python -m benchmarks cluster --corpus --rounds 2
    python -m benchmarks cluster --plan --workers 2,4,8

The first embeds lines of Wikipedia: one process with a thread a core, and a job with a worker a
core, in turn.  Rates begin with the first rows, so they leave out Ray's start and the loading.
With --characters texts are cut, and come again where Wikipedia has fewer.
--corpus runs build-corpus on the data folder's Wikipedia, with a process a core and on Ray, from
its start to its end, and compares the shards.
--plan has workers of Ray sleep for the time of files of unequal sizes, and compares the seconds
with those that ``makespan`` computes; docs/scale.md plans with it.
"""

import argparse
import heapq
import json
import lzma
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from benchmarks.harness import datasets, processes, script
from tidybert.cluster.file_job import run_job
from tidybert.cluster.input_files import input_files
from tidybert.files.reading import ReadReport
from tidybert.files.text_files import SUFFIXES
from tidybert.inference.text_jobs import EmbedJob, FileJob
from tidybert.storage.atomic_files import atomic_write_text, file_sha256
from tidybert.storage.part_file import Written
from tidybert.system.cores import available_cores
from tidybert.system.reporter import Reporter


@contextmanager
def folder_of(contents: Sequence[str], suffix: str) -> Iterator[Path]:
    """A folder whose folder "in" has these files."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "in").mkdir()
        for number, content in enumerate(contents):
            (root / "in" / f"{number:04}{suffix}").write_text(content)
        yield root


# --- a job that embeds


def bench(
    model: str, num_texts: int, num_files: int, rounds: int, most: int | None
) -> dict[str, dict[str, float]]:
    """Medians by side: "rows/s" from the first rows on, and on Ray "first rows" and "MiB".

    The first rows come after so many seconds, Ray's start included; MiB are those of the largest
    worker.
    """
    _, lines = datasets.wikipedia_lines(num_texts)
    rows = [json.dumps({"text": each[:most]}) + "\n" for each in islice(cycle(lines), num_texts)]
    work = EmbedJob(model=model, options={"precision": "float32"})

    def measure(side: str) -> tuple[dict[str, float], str]:
        first: tuple[float, int] | None = None
        begun, most_mib = time.perf_counter(), 0.0

        def advance(num_rows: int) -> None:
            nonlocal first, most_mib
            if num_rows and first is None:
                first = time.perf_counter(), num_rows
            if side != "alone":
                most_mib = max(most_mib, largest_worker())

        with tempfile.TemporaryDirectory(dir=root) as out:
            if side == "alone":
                opened, done = work.load(), 0
                for file in files:
                    source, target = Path(file.path), Path(out) / f"{file.name}{work.suffix}"
                    written = work.write_file(
                        opened, source, target, ReadReport(), Reporter(advance=advance)
                    )
                    done += written.num_texts
            else:
                job = partial(run_job, work, files, Path(out) / "ray", cluster="local")
                done = job(reporter=Reporter(advance=advance)).num_rows
        assert first is not None
        rate = (done - first[1]) / (time.perf_counter() - first[0])
        found = {"rows/s": rate, "first rows": first[0] - begun, "MiB": most_mib}
        return found, f"{rate:.1f} rows/s"

    with folder_of(["".join(rows[at::num_files]) for at in range(num_files)], ".jsonl") as root:
        files = input_files(str(root / "in"), SUFFIXES)
        samples = script.take_rounds(("alone", "ray"), rounds, measure)
    medians: dict[str, dict[str, float]] = script.summarize(samples)["medians"]
    return medians


def largest_worker() -> float:
    """Resident MiB of the largest process that works on files."""
    found = [0.0]
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if b"_RayWorker" in path.read_bytes():
                found.append(processes.memory_mib(path.parent.name, "VmRSS"))
    return max(found)


def print_job(given: argparse.Namespace) -> None:
    found = bench(given.model, given.texts, given.files, given.rounds, given.characters)
    alone, ray = found["alone"]["rows/s"], found["ray"]
    print(f"{given.texts:,} texts in {given.files} files, {available_cores()} cores")
    print(f"one process   {alone:8.1f} rows/s")
    print(f"local Ray     {ray['rows/s']:8.1f} rows/s, {ray['rows/s'] / alone:.2f} of it")
    print(f"              {ray['first rows']:8.1f} s to the first rows, Ray's start included")
    print(f"              {ray['MiB']:8.0f} MiB the largest worker")


# --- build-corpus


def build_corpora(num_files: int, rounds: int) -> None:
    """Build one corpus with a process a core and on Ray, in turn, and print the medians."""
    alone = f"{available_cores()} processes"
    paths = sorted((datasets.data_folder() / "corpus").glob("wiki*.xz"))
    text = b"\n\n".join(lzma.decompress(path.read_bytes()) for path in paths).decode()
    documents = text.split("\n\n")
    parts = ["\n\n".join(documents[at::num_files]) + "\n" for at in range(num_files)]
    megabytes = sum(len(part.encode()) for part in parts) / 1e6
    shards: set[tuple[str, ...]] = set()

    def measure(side: str) -> tuple[dict[str, float], str]:
        with tempfile.TemporaryDirectory(dir=root) as folder:
            command = [sys.executable, "-m", "tidybert", "build-corpus", str(root / "in")]
            command += ["--vocab", "minilm", "--out", f"{folder}/corpus", "--quiet"]
            command += [] if side == alone else ["--cluster", "local"]
            _, seconds, _ = script.timed(partial(subprocess.run, command, check=True))
            shards.add(tuple(map(file_sha256, sorted(Path(folder).glob("corpus/train-*")))))
        assert len(shards) == 1, "the shards differ"
        return {"seconds": seconds}, f"{seconds:.1f} s"

    with folder_of(parts, ".txt") as root:
        samples = script.take_rounds((alone, "local Ray"), rounds, measure)
    print(f"build-corpus, {megabytes:,.0f} MB in {num_files} files; the shards are equal")
    for side, found in samples.items():
        middle = float(np.median(found["seconds"]))
        print(f"{side:12} {middle:6.1f} s, {megabytes / middle:5.2f} MB/s")


# --- the plan


def makespan(seconds: Sequence[float], num_workers: int) -> float:
    """When the last file is done, where each worker takes the next file as it becomes free."""
    free = [0.0] * num_workers
    for each in seconds:
        heapq.heappush(free, heapq.heappop(free) + each)
    return max(free)


@dataclass(frozen=True, kw_only=True)
class SleepJob(FileJob):
    """Sleeps for as many seconds as the file says."""

    name: ClassVar = "sleep"
    suffix: ClassVar = ".done"

    def load(self) -> Any:
        return SimpleNamespace(fingerprint="none")

    def write_file(
        self, opened: Any, source: Path, target: Path, report: ReadReport, reporter: Reporter
    ) -> Written:
        time.sleep(float(source.read_text()))
        atomic_write_text(target, "done")
        reporter.advance(1)
        return Written(1, 0, 0)


def check_plan(num_workers: int, num_files: int) -> tuple[float, float]:
    """Seconds that the plan says, and that Ray takes, from the first file's begin to the end."""
    import ray

    seconds = np.random.default_rng(0).uniform(0.5, 3, num_files).round(2).tolist()
    begun: list[float] = []

    def advance(num_rows: int) -> None:
        if num_rows:
            begun.append(time.perf_counter())

    quiet = {"include_dashboard": False, "logging_level": "error", "log_to_driver": False}
    with folder_of([str(each) for each in seconds], ".txt") as root:
        files = input_files(str(root / "in"), SUFFIXES)
        ray.init("local", num_cpus=num_workers, **quiet)
        try:
            work = SleepJob(model="none")
            run_job(work, files, root / "out", cluster="local", reporter=Reporter(advance=advance))
            ended = time.perf_counter()
        finally:
            ray.shutdown()
    # The first file that was done began so long before.
    return makespan(seconds, num_workers), ended - begun[0] + min(seconds[:num_workers])


def main(parser: argparse.ArgumentParser) -> None:
    script.add_flags(parser, "model rounds")
    parser.add_argument("--texts", type=script.at_least(10), default=20_000)
    parser.add_argument("--files", type=script.at_least(1), default=10)
    parser.add_argument("--characters", type=script.at_least(1), help="of each text at most")
    parser.add_argument("--corpus", action="store_true", help="time build-corpus")
    parser.add_argument("--plan", action="store_true", help="check the plan for N workers")
    parser.add_argument("--workers", default="2,4,8")
    given = parser.parse_args()
    if given.corpus:
        build_corpora(given.files, given.rounds)
    elif not given.plan:
        print_job(given)
    else:
        print("workers  files  planned s  Ray s  of the plan")
        for number in map(int, given.workers.split(",")):
            planned, taken = check_plan(number, 12 * number)
            row = f"{number:7}  {12 * number:5}  {planned:9.1f}  {taken:5.1f}"
            print(f"{row}  {taken / planned:11.2f}")
