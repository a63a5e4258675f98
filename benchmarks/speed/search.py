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

import json
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from benchmarks.harness.datasets import examples_of, wikipedia_lines
from benchmarks.harness.rounds import (
    at_least,
    figure,
    note,
    print_speed,
    record,
    script_parser,
    summarize,
    take_rounds,
)
from tidybert.files.text_examples import TextExample
from tidybert.inference.answer_files import Layout, format_of, write_vectors
from tidybert.inference.embedding import Embedder
from tidybert.modeling.kernels.linear import product
from tidybert.modeling.kernels.nearest_vectors import DTYPES, top_k
from tidybert.modeling.kernels.threads import map_on_threads
from tidybert.search.index_files import rounded, write_index

WIDTH: Final = 384
TOP_K: Final = 10
QUERIES: Final = (1, 32)
_CHUNK: Final = 2**16


def random_vectors(count: int, seed: int) -> Any:
    """(count, WIDTH) float32 of length 1."""
    random = np.random.default_rng(seed)
    vectors = random.standard_normal((count, WIDTH), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def seconds_of(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def bench_search(count: int, rounds: int) -> dict[str, Any]:
    """Milliseconds of each search, and of the machine's limits: (wall, processor) a round."""
    vectors, queries = random_vectors(count, 0), random_vectors(max(QUERIES), 1)
    stored = {dtype: rounded(vectors, dtype) for dtype in DTYPES}
    samples: dict[str, list[tuple[float, float]]] = {}
    for number in range(rounds):
        found = limits(vectors, queries)
        for dtype, (numbers, scales) in stored.items():
            for m in QUERIES:
                search = partial(top_k, queries[:m], numbers, TOP_K, scales=scales)
                found[f"{dtype}, {m} at once"] = milliseconds_of(search)
        for name, value in found.items():
            samples.setdefault(name, []).append(value)
        note(f"round {number + 1} of {rounds}")
    return {"vectors": count, "rounds": rounds, "samples": samples}


def milliseconds_of(call: Callable[[], Any]) -> tuple[float, float]:
    """How long a call takes, and the processor time of each thread."""
    begin, used = time.perf_counter(), time.process_time()
    call()
    taken = time.perf_counter() - begin
    return 1000 * taken, 1000 * (time.process_time() - used) / torch.get_num_threads()


def limits(vectors: Any, queries: Any) -> dict[str, tuple[float, float]]:
    """What reading all vectors once takes, and all products of a search with its queries."""
    parts = [torch.from_numpy(each) for each in np.array_split(vectors, 32)]
    # A part that stays in the cache is multiplied again and again.
    small, wide = parts[0][:1024], torch.from_numpy(queries)
    many = [small] * max(1, len(vectors) // len(small))
    return {
        "reading float32": milliseconds_of(lambda: list(map_on_threads(torch.sum, parts))),
        f"products, {len(queries)} at once": milliseconds_of(
            lambda: list(map_on_threads(lambda part: product(part, wide), many))
        ),
    }


def bench_indexing(model: str, count: int, rounds: int) -> dict[str, Any]:
    """Texts a second of ``index`` and of ``embed``, in turn."""
    source, lines = wikipedia_lines(count)
    examples = [TextExample(line, None, None, row) for row, line in enumerate(lines, 1)]
    embedder = Embedder(model, normalize=True)
    # Hashing the weights is done once.
    note(f"{source}, {embedder.fingerprint[:8]}")

    def measure(side: str) -> tuple[Mapping[str, float], str]:
        with tempfile.TemporaryDirectory() as folder:
            if side == "index":
                out = Path(folder) / "index"
                seconds = seconds_of(lambda: write_index(embedder, examples, out, model=model))
            else:
                file = Path(folder) / "vectors.npy"
                kind = format_of(file, Layout(embedder.dimension, False, "float32"))
                seconds = seconds_of(lambda: write_vectors(embedder, examples, file, kind))
        rate = len(examples) / seconds
        return {"texts/s": rate}, f"{rate:.1f} texts/s"

    samples = take_rounds(("index", "embed"), rounds, measure)
    return {"texts": len(examples), "data": source, "rounds": rounds, **summarize(samples)}


def recalls(model: str) -> dict[str, float]:
    """The share of the ten nearest texts in float32 that each type finds too."""
    embedder = Embedder(model, normalize=True)
    texts, queries = (
        embedder.embed([one.text for one in examples_of("BANKING77", part)], progress=True)
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


def print_search(result: Mapping[str, Any]) -> None:
    """The best and the median of each figure: other programs only ever make one worse."""
    print(f"{result['vectors']:,} vectors of {WIDTH}, top {TOP_K}, milliseconds\n")
    print(f"{'':<24}{'best':>10}{'median':>10}{'processor':>12}")
    for name, values in result["samples"].items():
        wall, used = zip(*values, strict=True)
        cells = min(wall), float(np.median(wall)), min(used)
        print(f"{name:<24}{figure(cells[0]):>10}{figure(cells[1]):>10}{figure(cells[2]):>12}")
    where = record()["machine"]
    print(f"\n{result['rounds']} rounds; {torch.get_num_threads()} threads; {where['cpu']}")


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--vectors", type=at_least(1), default=1_000_000, help="random vectors")
    parser.add_argument("--texts", type=at_least(1), help="time indexing so many texts")
    parser.add_argument("--recall", action="store_true", help="count what each type still finds")
    parser.add_argument("--model", default="minilm", help="MODEL of --texts and --recall")
    parser.add_argument("--rounds", type=at_least(1), default=5, help="default 5")
    parser.add_argument("--json", action="store_true", help="print one JSON object, every sample")
    given = parser.parse_args()
    if given.recall:
        print(json.dumps(recalls(given.model)))
    elif given.texts:
        result = bench_indexing(given.model, given.texts, given.rounds)
        print_speed(
            f"Indexing {result['texts']:,} texts: {result['data']}",
            result,
            {"texts/s": "texts/s"},
            as_json=given.json,
            other="embed",
        )
    else:
        result = bench_search(given.vectors, given.rounds)
        if given.json:
            print(json.dumps({**result, **record()}))
        else:
            print_search(result)
