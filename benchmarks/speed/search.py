"""Time exact search over random vectors, and indexing beside embedding.

    python -m benchmarks search --vectors 1000000 --rounds 5
    python -m benchmarks search --texts 10000 --rounds 3
    python -m benchmarks search --recall

Without --texts and --recall it times ``top_k`` for one query and for 32, of float32, float16 and
int8, with the bytes a second that the machine reads and the products a second that it computes
beside.  Processor time, divided by the threads, is what a search would take on cores of its own.
--texts indexes so many lines of Wikipedia and embeds the same into a file, in turn.
--recall counts how many of the ten nearest texts each type still finds among those of BANKING77.
"""

import argparse
import json
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
from tidybert.search.index_files import rounded, write_index
from tidybert.search.nearest_vectors import DTYPES, top_k

WIDTH: Final = 384
TOP_K: Final = 10
QUERIES: Final = (1, 32)


def bench_search(count: int, rounds: int) -> dict[str, Any]:
    """Milliseconds of each search, and of the machine's limits: "wall" and "processor" a round."""

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

    def measure(name: str) -> dict[str, float]:
        _, wall, used = script.timed(calls[name])
        return {"wall": 1000 * wall, "processor": 1000 * used / torch.get_num_threads()}

    return {**script.take_rounds(list(calls), rounds, measure), "threads": torch.get_num_threads()}


def bench_indexing(model: str, count: int, rounds: int) -> dict[str, Any]:
    """Texts a second of ``index`` and of ``embed``, in turn."""
    source, lines = datasets.wikipedia_lines(count)
    examples = [TextExample(line, None, None, row) for row, line in enumerate(lines, 1)]
    embedder = Embedder(model, normalize=True)
    # Hashing the weights is done once.
    script.note(f"{source}, {embedder.fingerprint[:8]}")

    def measure(side: str) -> dict[str, float]:
        with tempfile.TemporaryDirectory() as folder:
            file, index = Path(folder) / "vectors.npy", Path(folder) / "index"
            write: Any = partial(write_index, embedder, examples, index, model=model)
            if side == "embed":
                kind = format_of(file, Layout(embedder.dimension, False, "float32"))
                write = partial(write_vectors, embedder, examples, file, kind)
            return {"texts/s": len(examples) / script.timed(write)[1]}

    found = script.take_rounds(("index", "embed"), rounds, measure)
    return {"texts": len(lines), "data": source, **found}


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


def main(parser: argparse.ArgumentParser) -> None:
    script.add_number(parser, "vectors", 1_000_000, "random vectors")
    script.add_number(parser, "texts", None, "time indexing so many texts")
    parser.add_argument("--recall", action="store_true", help="count what each type still finds")
    script.add_flags(parser, "model rounds json", rounds=5)
    given = parser.parse_args()
    if given.recall:
        print(json.dumps(recalls(given.model)))
    elif given.texts:
        result = bench_indexing(given.model, given.texts, given.rounds)
        title = f"Indexing {result['texts']:,} texts: {result['data']}"
        script.print_speed(given, title, result, {"texts/s": "texts/s"})
    else:
        result = bench_search(given.vectors, given.rounds)
        rows = []
        for name, values in result["samples"].items():
            # Other programs only ever make a figure worse.
            wall, used = values["wall"], values["processor"]
            shown = min(wall), result["medians"][name]["wall"], min(used)
            rows.append([name, *map(script.figure, shown)])
        title = f"{given.vectors:,} vectors of {WIDTH}, top {TOP_K}, milliseconds"
        heads = ["", "best", "median", "processor"]
        script.print_table(given, title, result, heads, rows)
