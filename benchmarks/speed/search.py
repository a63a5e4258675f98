"""Time exact search over random vectors, and indexing beside embedding.

    python -m benchmarks search --vectors 1000000 --rounds 5
    python -m benchmarks search --texts 10000 --rounds 3
    python -m benchmarks search --recall
    python -m benchmarks search --index INDEX --rounds 3

Without --texts and --recall it times ``top_k`` for one query and for 32, of float32, float16 and
int8, with the bytes a second that the machine reads and the products a second that it computes
beside.  Processor time, divided by the threads, is what a search would take on cores of its own.
--texts indexes so many lines of Wikipedia and embeds the same into a file, in turn.
--recall counts how many of the ten nearest texts each type still finds among those of BANKING77.
--index searches an index with the questions of SQuAD, one at a time, by its signs and exactly in
turn, and then times changes to a copy of it, without the vectors' own computation.
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from benchmarks.harness import datasets, script
from tidybert.files.text_examples import TextExample
from tidybert.inference.answer_files import Layout, format_of, write_vectors
from tidybert.inference.embedding import Embedder
from tidybert.modeling.kernels.linear import product
from tidybert.modeling.kernels.threads import map_on_threads
from tidybert.search.index import Index
from tidybert.search.index_files import compact_index, delete_texts, rounded, write_index
from tidybert.search.nearest_vectors import DTYPES, top_k

WIDTH: Final = 384
TOP_K: Final = 10
QUERIES: Final = (1, 32)
_ASKED: Final = 100


def bench_search(count: int, rounds: int) -> dict[str, Any]:
    """Milliseconds of each search, and of the machine's limits: (wall, processor) a round."""

    def random_vectors(count: int, seed: int) -> Any:
        vectors = np.random.default_rng(seed).standard_normal((count, WIDTH), dtype=np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors

    vectors, queries = random_vectors(count, 0), random_vectors(max(QUERIES), 1)
    parts, wide = [*map(torch.from_numpy, np.array_split(vectors, 32))], torch.from_numpy(queries)
    # A part that stays in the cache is multiplied again and again.
    small = parts[0][:1024]
    many = [small] * max(1, count // len(small))
    calls: dict[str, Callable[[], Any]] = {
        "reading float32": lambda: list(map_on_threads(torch.sum, parts)),
        f"products, {len(queries)} at once": lambda: list(
            map_on_threads(lambda part: product(part, wide), many)
        ),
    }
    for dtype in DTYPES:
        numbers, scales = rounded(vectors, dtype)
        for m in QUERIES:
            search = partial(top_k, queries[:m], numbers, TOP_K, scales=scales)
            calls[f"{dtype}, {m} at once"] = search
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for number in range(rounds):
        for name, call in calls.items():
            _, wall, used = script.timed(call)
            samples[name].append((1000 * wall, 1000 * used / torch.get_num_threads()))
        script.note(f"round {number + 1} of {rounds}")
    return {"vectors": count, "rounds": rounds, "samples": samples}


def print_search(result: dict[str, Any]) -> None:
    """The best and the median of each figure: other programs only ever make one worse."""
    print(f"{result['vectors']:,} vectors of {WIDTH}, top {TOP_K}, milliseconds\n")
    print(f"{'':<24}{'best':>10}{'median':>10}{'processor':>12}")
    for name, values in result["samples"].items():
        wall, used = zip(*values, strict=True)
        best, median, least = map(script.figure, (min(wall), float(np.median(wall)), min(used)))
        print(f"{name:<24}{best:>10}{median:>10}{least:>12}")
    where = script.record()["machine"]
    print(f"\n{result['rounds']} rounds; {torch.get_num_threads()} threads; {where['cpu']}")


def bench_indexing(model: str, count: int, rounds: int) -> dict[str, Any]:
    """Texts a second of ``index`` and of ``embed``, in turn."""
    source, lines = datasets.wikipedia_lines(count)
    examples = [TextExample(line, None, None, row) for row, line in enumerate(lines, 1)]
    embedder = Embedder(model, normalize=True)
    # Hashing the weights is done once.
    script.note(f"{source}, {embedder.fingerprint[:8]}")

    def measure(side: str) -> tuple[dict[str, float], str]:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "vectors.npy"
            write: Any = partial(
                write_index, embedder, examples, Path(folder) / "index", model=model
            )
            if side == "embed":
                kind = format_of(file, Layout(embedder.dimension, False, "float32"))
                write = partial(write_vectors, embedder, examples, file, kind)
            rate = len(examples) / script.timed(write)[1]
        return {"texts/s": rate}, f"{rate:.1f} texts/s"

    samples = script.take_rounds(("index", "embed"), rounds, measure)
    return {"texts": len(lines), "data": source, "rounds": rounds, **script.summarize(samples)}


def recalls(model: str) -> dict[str, float]:
    """The share of the ten nearest texts in float32 that each type finds too."""
    embedder = Embedder(model, normalize=True)
    texts, queries = (
        embedder.embed([one.text for one in datasets.examples_of("BANKING77", part)], progress=True)
        for part in ("train", "dev")
    )
    best, _ = top_k(queries, texts, TOP_K)
    found = {}
    for dtype in DTYPES:
        numbers, scales = rounded(texts, dtype)
        positions, _ = top_k(queries, numbers, TOP_K, scales=scales)
        same = [len(np.intersect1d(*pair)) for pair in zip(best, positions, strict=True)]
        found[dtype] = float(np.mean(same)) / TOP_K
    return found


_CHANGES: Final = 10_000


def search_index(directory: str, rounds: int) -> None:
    """Print p50, p95 and recall of queries by signs beside exact ones, and seconds of changes."""
    index = Index.open(directory, precision=Index(directory).settings["precision"])
    asked = [one.question for one in datasets.examples_of("2.0", "dev")][:_ASKED]
    assert index.embedder is not None
    queries = index.embedder.embed(asked)
    found: dict[bool, list[Any]] = {}
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for number in range(rounds):
        for exact in seconds:
            hits = []
            for query in queries:
                each, wall, _ = script.timed(
                    partial(index.nearest, query[None], TOP_K, exact=exact)
                )
                hits.append([hit.position for hit in each[0]])
                seconds[exact].append(1000 * wall)
            found[exact] = hits
        script.note(f"round {number + 1} of {rounds}")
    same = [len(np.intersect1d(*pair)) for pair in zip(found[False], found[True], strict=True)]
    print(f"{len(index):,} texts, {len(queries)} questions; {index.facts().get('search')}")
    for exact, values in seconds.items():
        middle, high = np.quantile(values, [0.5, 0.95])
        print(f"{'exact' if exact else 'signs':<6} {middle:8.1f} ms p50 {high:8.1f} ms p95")
    print(f"recall of ten: {np.mean(same) / TOP_K:.4f}")
    with tempfile.TemporaryDirectory(dir=Path(directory).parent) as folder:
        copy = Path(shutil.copytree(directory, Path(folder) / "index"))
        ids = [str(number) for number in range(0, len(index), max(1, len(index) // _CHANGES))]
        calls = {
            "delete": partial(delete_texts, copy, ids),
            "compact": partial(compact_index, copy),
        }
        for name, call in calls.items():
            changed, wall, _ = script.timed(call)
            print(f"{name} {changed:,} texts: {wall:.1f} s")


def main(parser: argparse.ArgumentParser) -> None:
    number = script.at_least(1)
    parser.add_argument("--vectors", type=number, default=1_000_000, help="random vectors")
    parser.add_argument("--texts", type=number, help="time indexing so many texts")
    parser.add_argument("--recall", action="store_true", help="count what each type still finds")
    parser.add_argument("--index", metavar="DIR", help="search and change this index")
    script.add_flags(parser, "model rounds json", rounds=5)
    given = parser.parse_args()
    if given.index:
        search_index(given.index, given.rounds)
    elif given.recall:
        print(json.dumps(recalls(given.model)))
    elif given.texts:
        result = bench_indexing(given.model, given.texts, given.rounds)
        title = f"Indexing {result['texts']:,} texts: {result['data']}"
        rows = {"texts/s": "texts/s"}
        script.print_speed(title, result, rows, as_json=given.json, other="embed")
    else:
        result = bench_search(given.vectors, given.rounds)
        if given.json:
            print(json.dumps({**result, **script.record()}))
        else:
            print_search(result)
