"""Find labels that were flipped: precision and recall of ``tidybert check`` beside cleanlab's.

    python -m benchmarks label_errors --cleanlab cleanlab/bin/python --write benchmarks/NOTES.md

A share of the labels of --size training texts is flipped to other classes at random.  Both programs
rank the same out-of-fold probabilities and name as many labels as were flipped, so that precision
and recall are equal.  A data set's own errors, which both find too, count as mistakes here.

cleanlab runs in an environment of its own: python -m venv cleanlab, then pip install cleanlab
there.  Without it its columns stay empty.  Each measurement is a line of --out, and a stopped run
continues from there.
"""

import argparse
import statistics
import time
from dataclasses import replace
from functools import cache, partial
from itertools import product
from typing import Any, Final

import numpy as np

from benchmarks.harness.datasets import drawn, examples_of
from benchmarks.harness.processes import in_environment
from benchmarks.harness.tables import Results, markdown, results_parser, show
from tidybert.checking.label_check import label_findings, label_probabilities, text_vectors
from tidybert.data.checks import TrainingData
from tidybert.inference.embedding import Embedder
from tidybert.tasks.classification import Classification

DATA_SETS: Final = ("SST-2", "TREC", "BANKING77")
RATES: Final = (0.05, 0.1)
RANKINGS: Final = ("self_confidence", "normalized_margin", "confidence_weighted_entropy")
MAX_SEQ_LENGTH: Final = 128
_CLEANLAB: Final = """
import json, sys, numpy as np
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores
given = json.load(sys.stdin)
p, labels = np.array(given["p"], dtype=given["dtype"]), np.array(given["labels"])
found = {
    name: np.argsort(get_label_quality_scores(labels, p, method=name), kind="stable").tolist()
    for name in given["rankings"]
}
found["find_label_issues"] = find_label_issues(
    labels, p, return_indices_ranked_by="self_confidence", n_jobs=1
).tolist()
print(json.dumps(found))
"""


@cache
def embedded(name: str, part: str, count: int, model: str) -> tuple[list[Any], Any, Any, float]:
    """The examples of a draw, their features and vectors, and the seconds of encoding."""
    examples = drawn(examples_of(name, part), count, 0)
    examples = [replace(one, row=at) for at, one in enumerate(examples)]
    embedder = Embedder(model, normalize=False)
    begin = time.perf_counter()
    task = Classification.from_examples(examples)
    features = task.features(examples, embedder.tokenizer, MAX_SEQ_LENGTH)
    vectors = text_vectors(embedder, features, len(examples), lambda _num_done: None)
    return examples, features, vectors, time.perf_counter() - begin


def measured(name: str, rate: float, seed: int, given: argparse.Namespace) -> dict[str, Any]:
    """The share of flipped labels among as many as each side names first, and how many it lists."""
    examples, features, vectors, encoding = embedded(name, "train", given.size, given.model)
    task = Classification.from_examples(examples)
    random = np.random.default_rng(seed)
    chosen = random.choice(len(examples), int(rate * len(examples)), replace=False)
    flipped = set(chosen.tolist())
    noisy = list(examples)
    for at in chosen.tolist():
        others = [each for each in task.names if each != examples[at].label]
        noisy[at] = replace(noisy[at], label=str(random.choice(others)))
    task.add_labels(features, noisy)
    data = TrainingData(noisy, None, features, [], MAX_SEQ_LENGTH)
    begin = time.perf_counter()
    p = label_probabilities(task, data, vectors, lambda _num_done: None)
    found = label_findings(task, data, p)
    seconds = time.perf_counter() - begin
    named = {"tidybert": [each["row"] for each in found["suspected"]]}
    if given.cleanlab is not None:
        labels = [task.label_ids[str(one.label)] for one in noisy]
        work = {"p": p.tolist(), "dtype": str(p.dtype), "labels": labels, "rankings": RANKINGS}
        named |= in_environment(given.cleanlab, _CLEANLAB, work)
    shares = {side: len(flipped.intersection(rows)) for side, rows in named.items()}
    first = {side: len(flipped.intersection(rows[: len(flipped)])) for side, rows in named.items()}
    return {
        "agreement": found["agreement"],
        "precision": {side: count / len(flipped) for side, count in first.items()},
        "listed": {side: len(rows) for side, rows in named.items()},
        "found": {side: count / len(flipped) for side, count in shares.items()},
        "seconds": encoding + seconds,
    }


def table(results: Results) -> list[str]:
    """Markdown rows: precision at the number flipped, and what each list has, in percent."""
    sides = {"tidybert": "tidybert", **{name: f"cleanlab, {name}" for name in RANKINGS}}
    heads = ["data", "flipped", "probe agrees", *sides.values()]
    heads += ["tidybert lists", "of the flipped", "cleanlab lists", "of the flipped"]
    rows = []
    for name, rate in product(DATA_SETS, RATES):
        lines = results.where(data=name, rate=rate)
        if not lines:
            continue

        def mean(key: str, side: str, lines: Any = lines) -> str:
            values = [line[key][side] for line in lines if side in line[key]]
            if not values:
                return ""
            mean = statistics.mean(values)
            return f"{mean:.0f}" if key == "listed" else f"{100 * mean:.1f}"

        agreement = statistics.mean(100 * line["agreement"] for line in lines)
        cells = [name, f"{rate:.0%}", f"{agreement:.1f}"]
        cells += [mean("precision", side) for side in sides]
        for side in ("tidybert", "find_label_issues"):
            cells += [mean("listed", side), mean("found", side)]
        rows.append(cells)
    return markdown(heads, rows)


def main() -> None:
    parser = results_parser(__doc__, "label-errors")
    parser.add_argument("--size", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cleanlab", help="Python of an environment that has cleanlab")
    given = parser.parse_args()
    results = Results(given.out)
    for name, rate, seed in product(DATA_SETS, RATES, range(1, given.seeds + 1)):
        key = {"data": name, "rate": rate, "seed": seed, "size": given.size, "model": given.model}
        results.take(key, partial(measured, name, rate, seed, given))
    show(table(results), given.write, "label-errors")
