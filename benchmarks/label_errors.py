"""Find labels that were flipped: precision and recall of ``tidybert check`` beside cleanlab's.

    python benchmarks/label_errors.py --cleanlab cleanlab/bin/python --write docs/results.md

A share of the labels of --size training texts is flipped to other classes at random.  Both programs
rank the same out-of-fold probabilities and name as many labels as were flipped, so that precision
and recall are equal.  A data set's own errors, which both find too, count as mistakes here.

cleanlab runs in an environment of its own: python -m venv cleanlab, then pip install cleanlab
there.  Without it its columns stay empty.  The data folder is TIDYBERT_DATA or ../shared/data; each
measurement is a line of --out, and a stopped run continues from there.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
from head_start import drawn, examples_of
from side_by_side import show

DATA_SETS: Final = ("SST-2", "TREC", "BANKING77")
RATES: Final = (0.05, 0.1)
RANKINGS: Final = ("self_confidence", "normalized_margin", "confidence_weighted_entropy")
_CLEANLAB: Final = """
import json, sys, numpy as np
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores
given = np.load(sys.argv[1])
p, labels = given["p"], given["labels"]
found = {
    name: np.argsort(get_label_quality_scores(labels, p, method=name), kind="stable").tolist()
    for name in json.loads(sys.argv[2])
}
found["find_label_issues"] = find_label_issues(
    labels, p, return_indices_ranked_by="self_confidence", n_jobs=1
).tolist()
print(json.dumps(found))
"""


@cache
def embedded(name: str, size: int, model: str) -> tuple[list[Any], Any, Any, float]:
    """The examples of a data set, their features and vectors, and the seconds of encoding."""
    from tidybert.checking.label_check import text_vectors
    from tidybert.inference.embedding import Embedder
    from tidybert.tasks.classification import Classification

    examples = drawn(examples_of(name, "train"), size, 0)
    embedder = Embedder(model)
    begin = time.perf_counter()
    features = Classification.from_examples(examples).features(examples, embedder.tokenizer, 128)
    vectors = text_vectors(embedder, features, len(examples), lambda _num_done: None)
    return examples, features, vectors, time.perf_counter() - begin


def measured(name: str, rate: float, seed: int, given: argparse.Namespace) -> dict[str, Any]:
    """The share of flipped labels among as many as each side names first, and how many it lists."""
    from dataclasses import replace

    from tidybert.checking.label_check import label_findings, label_probabilities
    from tidybert.data.checks import TrainingData
    from tidybert.tasks.classification import Classification

    examples, features, vectors, encoding = embedded(name, given.size, given.model)
    task = Classification.from_examples(examples)
    random = np.random.default_rng(seed)
    chosen = random.choice(len(examples), int(rate * len(examples)), replace=False)
    flipped = set(chosen.tolist())
    noisy = [replace(one, row=at) for at, one in enumerate(examples)]
    for at in chosen.tolist():
        others = [each for each in task.names if each != examples[at].label]
        noisy[at] = replace(noisy[at], label=str(random.choice(others)))
    task.add_labels(features, noisy)
    data = TrainingData(noisy, None, features, [], 128)
    begin = time.perf_counter()
    p = label_probabilities(task, data, vectors, lambda _num_done: None)
    found = label_findings(task, data, p)
    seconds = time.perf_counter() - begin
    named = {"tidybert": [each["row"] for each in found["suspected"]]}
    if given.cleanlab is not None:
        labels = np.array([task.label_ids[str(one.label)] for one in noisy])
        named |= beside(given.cleanlab, p, labels)
    return {
        "agreement": found["agreement"],
        "precision": {
            side: len(flipped.intersection(rows[: len(flipped)])) / len(flipped)
            for side, rows in named.items()
        },
        "listed": {side: len(rows) for side, rows in named.items()},
        "found": {
            side: len(flipped.intersection(rows)) / len(flipped) for side, rows in named.items()
        },
        "seconds": encoding + seconds,
    }


def beside(python: str, p: Any, labels: Any) -> dict[str, list[int]]:
    """cleanlab's ranked rows by method."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "given.npz"
        np.savez(path, p=p, labels=labels)
        words = [python, "-c", _CLEANLAB, str(path), json.dumps(RANKINGS)]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
    found: dict[str, list[int]] = json.loads(done.stdout)
    return found


def table(results: Sequence[dict[str, Any]]) -> list[str]:
    """Markdown rows: precision at the number flipped, and what each list has, in percent."""
    sides = {"tidybert": "tidybert", **{name: f"cleanlab, {name}" for name in RANKINGS}}
    heads = ["data", "flipped", "probe agrees", *sides.values()]
    heads += ["tidybert lists", "of the flipped", "cleanlab lists", "of the flipped"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, rate in product(DATA_SETS, RATES):
        rows = [each for each in results if (each["data"], each["rate"]) == (name, rate)]
        if not rows:
            continue

        def mean(key: str, side: str, scale: float = 100, rows: Any = rows) -> str:
            values = [scale * each[key][side] for each in rows if side in each[key]]
            return f"{statistics.mean(values):.{1 if scale == 100 else 0}f}" if values else ""

        agreement = statistics.mean(100 * each["agreement"] for each in rows)
        cells = [name, f"{rate:.0%}", f"{agreement:.1f}"]
        cells += [mean("precision", side) for side in sides]
        for side in ("tidybert", "find_label_issues"):
            cells += [mean("listed", side, 1), mean("found", side)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Measure what --out lacks, then print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--size", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cleanlab", help="Python of an environment that has cleanlab")
    parser.add_argument("--out", type=Path, default=Path("label-errors.jsonl"))
    parser.add_argument("--write", type=Path, help="page to put the table into")
    given = parser.parse_args()
    results: list[dict[str, Any]] = []
    if given.out.exists():
        results = [json.loads(line) for line in given.out.read_text().splitlines()]
    for name, rate, seed in product(DATA_SETS, RATES, range(1, given.seeds + 1)):
        line = {"data": name, "rate": rate, "seed": seed, "size": given.size, "model": given.model}
        if any(line.items() <= each.items() for each in results):
            continue
        line |= measured(name, rate, seed, given)
        results.append(line)
        with given.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    show(table(results), given.write, "label-errors")


if __name__ == "__main__":
    main()
