"""Accuracy by number of labels: texts that ``tidybert check --suggest`` names, or random ones.

    python -m benchmarks suggested_labels --write benchmarks/NOTES.md

Each curve begins with the same --start random texts of --pool, and adds --step texts a round: at
random, those that tidybert suggests, or the most uncertain ones whether they are alike or not.  The
probe, a linear model on the frozen encoder's vectors, is fitted to the labelled texts and measured
on at most --num-test texts of the test part, in percent, mean and deviation over --seeds.  Each
curve is a line of --out, and a stopped run continues from there.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, Final

import numpy as np

from benchmarks.harness.tables import Results, markdown, percent, results_parser, show
from benchmarks.scores.label_errors import MAX_SEQ_LENGTH, embedded
from tidybert.checking.label_check import Vectors, fitted, margins, probabilities, suggestions
from tidybert.data.checks import TrainingData
from tidybert.tasks.classification import Classification

DATA_SETS: Final = ("SST-2", "TREC")
WAYS: Final = ("random", "suggested", "uncertain alone")


def curve(name: str, way: str, seed: int, given: argparse.Namespace) -> dict[str, list[float]]:
    """Accuracy on the test part after each round."""
    known = embedded(name, "train", given.pool, given.model)
    test, _, test_vectors, _ = embedded(name, "dev", given.num_test, given.model)
    random = np.random.default_rng(seed)
    labelled = random.permutation(len(known[0]))[: given.start].tolist()
    scores = []
    for number in range(given.rounds + 1):
        if number:
            rest = sorted({*range(len(known[0]))} - {*labelled})
            labelled += next_ones(way, labelled, rest, known, random, given.step)
        scores.append(accuracy(known, labelled, test, test_vectors))
    return {"curve": scores}


def accuracy(known: Any, labelled: Sequence[int], test: Sequence[Any], vectors: Any) -> float:
    """Of the probe of the labelled texts; a class that none of them has is never right."""
    task, data = task_of(known, labelled)
    probe = fitted(task, known[2][labelled], data.train_features, np.arange(len(labelled)))
    best = probabilities(probe, vectors).argmax(axis=1)
    right = [task.names[at] == one.label for at, one in zip(best.tolist(), test, strict=True)]
    return float(np.mean(right))


def task_of(known: Any, labelled: Sequence[int]) -> tuple[Any, Any]:
    """The task that the labelled texts make, and these as its training data."""
    examples = [known[0][at] for at in labelled]
    features = [replace(known[1][at], example=number) for number, at in enumerate(labelled)]
    task = Classification.from_examples(examples)
    task.add_labels(features, examples)
    return task, TrainingData(examples, None, features, [], MAX_SEQ_LENGTH)


def next_ones(
    way: str, labelled: Sequence[int], rest: Sequence[int], known: Any, random: Any, step: int
) -> list[int]:
    """Numbers of the texts to label next."""
    if way == "random":
        chosen: list[int] = random.permutation(rest)[:step].tolist()
        return chosen
    task, data = task_of(known, labelled)
    vectors = Vectors(known[2][labelled], known[2][:0], known[2][rest])
    if way == "suggested":
        found = suggestions(task, data, vectors, [known[0][at] for at in rest], step)
        return [each["row"] for each in found]
    probe = fitted(task, vectors.train, data.train_features, np.arange(len(labelled)))
    order = np.argsort(margins(probabilities(probe, vectors.pool)), kind="stable")
    return [rest[at] for at in order[:step].tolist()]


def table(results: Results, labels: Sequence[int]) -> list[str]:
    """Markdown rows: accuracy after each round, of each way."""
    rows = []
    for name, way in product(DATA_SETS, WAYS):
        curves = [line["curve"] for line in results.where(data=name, way=way)]
        cells = [percent(scores) for scores in zip(*curves, strict=True)]
        rows += [[name, way, *cells]] if cells else []
    return markdown(["data", "texts", *map(str, labels)], rows)


def main() -> None:
    parser = results_parser(__doc__, "suggested-labels")
    parser.add_argument("--pool", type=int, default=2000)
    parser.add_argument("--num-test", type=int, default=1000)
    parser.add_argument("--start", type=int, default=100)
    parser.add_argument("--step", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    settings = {
        name: getattr(given, name)
        for name in ("model", "pool", "num_test", "start", "step", "rounds")
    }
    results = Results(given.out)
    for seed, name, way in product(range(1, given.seeds + 1), DATA_SETS, WAYS):
        key = {"data": name, "way": way, "seed": seed, **settings}
        results.take(key, partial(curve, name, way, seed, given))
    labels = [given.start + number * given.step for number in range(given.rounds + 1)]
    show(table(results, labels), given.write, "suggested-labels")
