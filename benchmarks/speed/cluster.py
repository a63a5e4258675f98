"""Time a job over many files on a local Ray beside one process.

The first embeds lines of Wikipedia: one process with a thread a core, and a job with a worker a
core, in turn.  Rates begin with the first rows, so they leave out Ray's start and the loading. With
--characters texts are cut, and come again where Wikipedia has fewer.  --corpus runs build-corpus on
the data folder's Wikipedia, with a process a core and on Ray, from its start to its end, and
compares the shards.
"""

import argparse
import json
import lzma
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from benchmarks.harness import datasets, script
from tidybert.cluster.file_job import run_job
from tidybert.cluster.input_files import input_files
from tidybert.files.reading import ReadReport
from tidybert.files.text_files import SUFFIXES
from tidybert.inference.text_jobs import EmbedJob
from tidybert.storage.atomic_files import file_sha256
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


def bench_embedding(given: argparse.Namespace) -> dict[str, Any]:
    """ "rows/s" from the first rows on, their seconds, and MiB of the process or largest worker."""
    _, lines = datasets.wikipedia_lines(given.texts)
    cut = (each[: given.characters] for each in islice(cycle(lines), given.texts))
    rows = [json.dumps({"text": each}) + "\n" for each in cut]
    work = EmbedJob(model=given.model, options={"precision": "float32"})

    def measure(side: str) -> dict[str, float]:
        first: tuple[float, int] | None = None
        begun, most_mib = time.perf_counter(), 0.0

        def advance(num_rows: int) -> None:
            nonlocal first, most_mib
            if num_rows and first is None:
                first = time.perf_counter(), num_rows
            is_ray = side == "local Ray"
            mib = largest_worker() if is_ray else script.memory_mib(field="VmRSS")
            most_mib = max(most_mib, mib)

        with tempfile.TemporaryDirectory(dir=root) as out:
            if side == "one process":
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
        return {"rows/s": rate, "first rows": first[0] - begun, "MiB": most_mib}

    parts = ["".join(rows[at :: given.files]) for at in range(given.files)]
    with folder_of(parts, ".jsonl") as root:
        files = input_files(str(root / "in"), SUFFIXES)
        # The ratio is the first side's to the second.
        return script.take_rounds(("local Ray", "one process"), given.rounds, measure)


def largest_worker() -> float:
    """Resident MiB of the largest process of Ray that works on files."""
    found = [0.0]
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if b"_RayWorker" in path.read_bytes():
                found.append(script.memory_mib(path.parent.name, "VmRSS"))
    return max(found)


def bench_corpus(given: argparse.Namespace) -> dict[str, Any]:
    """Megabytes of text a second of build-corpus, with a process a core and on Ray."""
    paths = sorted((datasets.data_folder() / "corpus").glob("wiki*.xz"))
    text = b"\n\n".join(lzma.decompress(path.read_bytes()) for path in paths).decode()
    documents = text.split("\n\n")
    parts = ["\n\n".join(documents[at :: given.files]) + "\n" for at in range(given.files)]
    megabytes = sum(len(part.encode()) for part in parts) / 1e6
    shards: set[tuple[str, ...]] = set()

    def measure(side: str) -> dict[str, float]:
        with tempfile.TemporaryDirectory(dir=root) as folder:
            command = [sys.executable, "-m", "tidybert", "build-corpus", str(root / "in")]
            command += ["--vocab", "minilm", "--out", f"{folder}/corpus", "--quiet"]
            command += ["--cluster", "local"] if side == "local Ray" else []
            _, seconds, _ = script.timed(partial(subprocess.run, command, check=True))
            shards.add(tuple(map(file_sha256, sorted(Path(folder).glob("corpus/train-*")))))
        assert len(shards) == 1, "the shards differ"
        return {"MB/s": megabytes / seconds, "seconds": seconds}

    with folder_of(parts, ".txt") as root:
        alone = f"{available_cores()} processes"
        return script.take_rounds(("local Ray", alone), given.rounds, measure)


def main(parser: argparse.ArgumentParser) -> None:
    script.add_number(parser, "texts", 20_000, "to embed", least=10)
    script.add_number(parser, "files", 10, "to spread them over")
    script.add_number(parser, "characters", None, "of each text at most")
    parser.add_argument("--corpus", action="store_true", help="time build-corpus")
    given = script.parse(parser, "model rounds json")
    result = bench_corpus(given) if given.corpus else bench_embedding(given)
    what = "build-corpus, equal shards" if given.corpus else f"{given.texts:,} texts"
    rows = {name: name for name in next(iter(result["medians"].values()))}
    script.print_speed(given, f"{what}, {given.files} files", result, rows)
