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

import heapq
import json
import lzma
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Final

import numpy as np

from benchmarks.harness.datasets import data_folder, wikipedia_lines
from benchmarks.harness.rounds import at_least, in_turn, note, script_parser
from tidybert.cluster.file_job import run_job
from tidybert.cluster.input_files import InputFile, input_files
from tidybert.files.reading import ReadReport
from tidybert.files.text_files import SUFFIXES
from tidybert.inference.text_jobs import Advance, EmbedJob, FileJob
from tidybert.storage.atomic_files import atomic_write_text, file_sha256
from tidybert.storage.part_file import Written
from tidybert.system.cores import available_cores

MEBIBYTE: Final = 2**20


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
        self, opened: Any, source: Path, target: Path, report: ReadReport, advance: Advance
    ) -> Written:
        time.sleep(float(source.read_text()))
        atomic_write_text(target, "done")
        advance(1)
        return Written(1, 0, 0)


class Rate:
    """Rows a second from the first rows on, from what ``advance`` is called with."""

    def __init__(self) -> None:
        self.first: tuple[float, int] | None = None

    def __call__(self, num_rows: int) -> None:
        if num_rows and self.first is None:
            self.first = time.perf_counter(), num_rows

    def until_now(self, num_rows: int) -> float:
        assert self.first is not None
        begun, before = self.first
        return (num_rows - before) / (time.perf_counter() - begun)


def one_process(work: EmbedJob, files: Sequence[InputFile], out: Path) -> float:
    """Rows a second of the same work here, one file after the other."""
    opened, done, rate = work.load(), 0, Rate()
    for file in files:
        target = out / f"{file.name}{work.suffix}"
        done += work.write_file(opened, Path(file.path), target, ReadReport(), rate).num_texts
    return rate.until_now(done)


def on_ray(work: EmbedJob, files: Sequence[InputFile], out: Path) -> dict[str, float]:
    """Rows a second on Ray, the seconds before the first ones, and a worker's MiB at most."""
    begun, rate, most = time.perf_counter(), Rate(), 0

    def advance(num_rows: int) -> None:
        nonlocal most
        rate(num_rows)
        most = max(most, largest_worker())

    report = run_job(work, files, out, cluster="local", advance=advance)
    assert rate.first is not None
    return {
        "rows/s": rate.until_now(report.num_rows),
        "first rows": rate.first[0] - begun,
        "MiB": most / MEBIBYTE,
    }


def largest_worker() -> int:
    """Resident bytes of the largest process that works on files."""
    found = [0]
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"_RayWorker" in path.read_bytes():
                text = path.with_name("status").read_text()
                found.append(1024 * int(text.partition("VmRSS:")[2].split()[0]))
        except (OSError, IndexError):
            continue
    return max(found)


def bench(
    model: str, num_texts: int, num_files: int, rounds: int, most: int | None
) -> dict[str, Any]:
    _, lines = wikipedia_lines(num_texts)
    lines = [line[:most] for line in islice(cycle(lines), num_texts)]
    work = EmbedJob(model=model, options={"precision": "float32"})
    samples: dict[str, list[Any]] = {"one process": [], "Ray": []}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "in").mkdir()
        for number in range(num_files):
            rows = [json.dumps({"text": line}) + "\n" for line in lines[number::num_files]]
            (root / "in" / f"{number:04}.jsonl").write_text("".join(rows))
        files = input_files(str(root / "in"), SUFFIXES)
        for number in range(rounds):
            out = root / f"alone-{number}"
            out.mkdir()
            samples["one process"].append(one_process(work, files, out))
            samples["Ray"].append(on_ray(work, files, root / f"ray-{number}"))
            note(f"round {number + 1} of {rounds}: {samples}")
    return {"texts": num_texts, "files": num_files, "samples": samples}


def show(result: dict[str, Any]) -> None:
    alone = float(np.median(result["samples"]["one process"]))
    ray = result["samples"]["Ray"]
    median = {name: float(np.median([each[name] for each in ray])) for name in ray[0]}
    print(f"{result['texts']:,} texts in {result['files']} files, {available_cores()} cores")
    print(f"one process   {alone:8.1f} rows/s")
    print(f"local Ray     {median['rows/s']:8.1f} rows/s, {median['rows/s'] / alone:.2f} of it")
    print(f"              {median['first rows']:8.1f} s to the first rows, Ray's start included")
    print(f"              {median['MiB']:8.0f} MiB the largest worker")


def build_corpora(num_files: int, rounds: int) -> None:
    """Build one corpus with a process a core and on Ray, in turn, and print the medians."""
    sides: dict[str, list[str]] = {
        f"{available_cores()} processes": [],
        "local Ray": ["--cluster", "local"],
    }
    samples: dict[str, list[float]] = {side: [] for side in sides}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "in").mkdir()
        paths = sorted((data_folder() / "corpus").glob("wiki*.xz"))
        text = b"\n\n".join(lzma.decompress(path.read_bytes()) for path in paths).decode()
        documents = text.split("\n\n")
        for number in range(num_files):
            part = "\n\n".join(documents[number::num_files])
            (root / "in" / f"{number:04}.txt").write_text(part + "\n")
        num_bytes = sum(path.stat().st_size for path in (root / "in").iterdir())
        for number in range(rounds):
            found = set()
            for side in in_turn(tuple(sides), number):
                out = root / f"corpus-{number}-{side}"
                command = [sys.executable, "-m", "tidybert", "build-corpus", str(root / "in")]
                command += ["--vocab", "minilm", "--out", str(out), "--quiet", *sides[side]]
                begin = time.perf_counter()
                subprocess.run(command, check=True)
                samples[side].append(time.perf_counter() - begin)
                found.add(tuple(file_sha256(path) for path in sorted(out.glob("train-*"))))
                note(f"{side}: {samples[side][-1]:.1f} s")
            assert len(found) == 1, "the shards differ"
    print(f"build-corpus, {num_bytes / 1e6:,.0f} MB in {num_files} files; the shards are equal")
    for side, seconds in samples.items():
        middle = float(np.median(seconds))
        print(f"{side:12} {middle:6.1f} s, {num_bytes / 1e6 / middle:5.2f} MB/s")


def check_plan(num_workers: int, num_files: int) -> tuple[float, float]:
    """Seconds that the plan says, and that Ray takes, from the first file's begin to the end."""
    import ray

    seconds = np.random.default_rng(0).uniform(0.5, 3, num_files).round(2).tolist()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "in"
        source.mkdir()
        for number, each in enumerate(seconds):
            (source / f"{number:04}.txt").write_text(str(each))
        ray.init(
            "local",
            num_cpus=num_workers,
            include_dashboard=False,
            logging_level="error",
            log_to_driver=False,
        )
        try:
            files = input_files(str(source), SUFFIXES)
            begun: list[float] = []
            work = SleepJob(model="none")
            out = Path(folder) / "out"
            run_job(
                work,
                files,
                out,
                cluster="local",
                advance=lambda num_rows: begun.append(time.perf_counter()) if num_rows else None,
            )
            ended = time.perf_counter()
        finally:
            ray.shutdown()
    # The first file that was done began so long before.
    return makespan(seconds, num_workers), ended - begun[0] + min(seconds[:num_workers])


def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--texts", type=at_least(10), default=20_000)
    parser.add_argument("--files", type=at_least(1), default=10)
    parser.add_argument("--rounds", type=at_least(1), default=3)
    parser.add_argument("--characters", type=at_least(1), help="of each text at most")
    parser.add_argument("--corpus", action="store_true", help="time build-corpus")
    parser.add_argument("--plan", action="store_true", help="check the plan for N workers")
    parser.add_argument("--workers", default="2,4,8")
    given = parser.parse_args()
    if given.corpus:
        build_corpora(given.files, given.rounds)
        return 0
    if not given.plan:
        show(bench(given.model, given.texts, given.files, given.rounds, given.characters))
        return 0
    print("workers  files  planned s  Ray s  of the plan")
    for number in map(int, given.workers.split(",")):
        files = 12 * number
        planned, taken = check_plan(number, files)
        print(f"{number:7}  {files:5}  {planned:9.1f}  {taken:5.1f}  {taken / planned:11.2f}")
    return 0
