"""Accuracy by number of labels: texts that ``tidybert check --suggest`` names, against random ones.

    python benchmarks/suggested_labels.py --write docs/results.md

Each curve begins with the same --start random texts of --pool, and adds --step texts a round: at
random, those that tidybert suggests, or the most uncertain ones whether they are alike or not.  The
probe, a linear model on the frozen encoder's vectors, is fitted to the labelled texts and measured
on at most --num-test texts of the test part, in percent, mean and deviation over --seeds.  The data
folder is TIDYBERT_DATA or ../shared/data; each curve is a line of --out, and a stopped run
continues from there.
"""

import argparse
import json
import statistics
from collections.abc import Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
from head_start import drawn, examples_of
from side_by_side import show

DATA_SETS: Final = ("SST-2", "TREC")
WAYS: Final = ("random", "suggested", "uncertain alone")


@cache
def embedded(name: str, part: str, count: int, model: str) -> tuple[list[Any], Any, Any]:
    """The examples of a part of a data set, their features and vectors."""
    from dataclasses import replace

    from tidybert.checking.label_check import text_vectors
    from tidybert.inference.embedding import Embedder
    from tidybert.tasks.classification import Classification

    examples = drawn(examples_of(name, part), count, 0)
    examples = [replace(one, row=at) for at, one in enumerate(examples)]
    embedder = Embedder(model)
    features = Classification.from_examples(examples).features(examples, embedder.tokenizer, 128)
    vectors = text_vectors(embedder, features, len(examples), lambda _num_done: None)
    return examples, features, vectors


def curve(name: str, way: str, seed: int, given: argparse.Namespace) -> list[float]:
    """Accuracy on the test part after each round."""
    pool, features, vectors = embedded(name, "train", given.pool, given.model)
    test, _, test_vectors = embedded(name, "dev", given.num_test, given.model)
    random = np.random.default_rng(seed)
    labelled = random.permutation(len(pool))[: given.start].tolist()
    scores = []
    for number in range(given.rounds + 1):
        if number:
            rest = sorted({*range(len(pool))} - {*labelled})
            labelled += next_ones(way, labelled, rest, (pool, features, vectors), random, given)
        scores.append(accuracy((pool, features, vectors), labelled, test, test_vectors))
    return scores


def accuracy(known: Any, labelled: Sequence[int], test: Sequence[Any], vectors: Any) -> float:
    """Of the probe of the labelled texts; a class that none of them has is never right."""
    from tidybert.checking.out_of_fold import fitted, probabilities

    task, data = task_of(known, labelled)
    probe = fitted(task, known[2][labelled], data.train_features, np.arange(len(labelled)))
    best = probabilities(probe, vectors).argmax(axis=1)
    right = [task.names[at] == one.label for at, one in zip(best.tolist(), test, strict=True)]
    return float(np.mean(right))


def task_of(known: Any, labelled: Sequence[int]) -> tuple[Any, Any]:
    """The task that the labelled texts make, and these as its training data."""
    from dataclasses import replace

    from tidybert.data.checks import TrainingData
    from tidybert.tasks.classification import Classification

    examples = [known[0][at] for at in labelled]
    features = [replace(known[1][at], example=number) for number, at in enumerate(labelled)]
    task = Classification.from_examples(examples)
    task.add_labels(features, examples)
    return task, TrainingData(examples, None, features, [], 128)


def next_ones(
    way: str, labelled: Sequence[int], rest: Sequence[int], known: Any, random: Any, given: Any
) -> list[int]:
    """Numbers of the texts to label next."""
    from tidybert.checking.label_check import Vectors, suggestions
    from tidybert.checking.out_of_fold import fitted, probabilities
    from tidybert.checking.suggestions import margins

    if way == "random":
        chosen: list[int] = random.permutation(rest)[: given.step].tolist()
        return chosen
    task, data = task_of(known, labelled)
    vectors = Vectors(known[2][labelled], known[2][:0], known[2][rest])
    if way == "suggested":
        found = suggestions(task, data, vectors, [known[0][at] for at in rest], given.step)
        return [each["row"] for each in found]
    probe = fitted(task, vectors.train, data.train_features, np.arange(len(labelled)))
    order = np.argsort(margins(probabilities(probe, vectors.pool)), kind="stable")
    return [rest[at] for at in order[: given.step].tolist()]


def table(results: Sequence[dict[str, Any]], given: argparse.Namespace) -> list[str]:
    """Markdown rows: accuracy after each round, of each way."""
    labels = [str(given.start + number * given.step) for number in range(given.rounds + 1)]
    lines = [f"| data | texts | {' | '.join(labels)} |", "|---" * (len(labels) + 2) + "|"]
    for name, way in product(DATA_SETS, WAYS):
        rows = [each["curve"] for each in results if (each["data"], each["way"]) == (name, way)]
        cells = []
        for scores in zip(*rows, strict=True):
            spread = f" ± {100 * statistics.stdev(scores):.1f}" if len(scores) > 1 else ""
            cells.append(f"{100 * statistics.mean(scores):.1f}{spread}")
        if cells:
            lines.append(f"| {name} | {way} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Measure what --out lacks, then print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--pool", type=int, default=2000)
    parser.add_argument("--num-test", type=int, default=1000)
    parser.add_argument("--start", type=int, default=100)
    parser.add_argument("--step", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("suggested-labels.jsonl"))
    parser.add_argument("--write", type=Path, help="page to put the table into")
    given = parser.parse_args()
    results: list[dict[str, Any]] = []
    if given.out.exists():
        results = [json.loads(line) for line in given.out.read_text().splitlines()]
    keys = ("model", "pool", "num_test", "start", "step", "rounds")
    settings = {key: getattr(given, key) for key in keys}
    for seed, name, way in product(range(1, given.seeds + 1), DATA_SETS, WAYS):
        line = {"data": name, "way": way, "seed": seed, **settings}
        if any(line.items() <= each.items() for each in results):
            continue
        line["curve"] = curve(name, way, seed, given)
        results.append(line)
        with given.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(name, way, seed, " ".join(f"{each:.3f}" for each in line["curve"]), flush=True)
    show(table(results, given), given.write, "suggested-labels")


if __name__ == "__main__":
    main()
