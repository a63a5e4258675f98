"""What ``tidybert check`` says of labels: those that are wrong, and the texts to label next."""

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.harness import datasets, processes, script
from tidybert.checking import label_check
from tidybert.data.checks import TrainingData
from tidybert.inference.embedding import Embedder
from tidybert.system.reporter import SILENT
from tidybert.tasks.classification import Classification

DATA_SETS: Final = ("SST-2", "TREC", "BANKING77")
MAX_SEQ_LENGTH: Final = 128


@cache
def embedded(name: str, part: str, count: int, model: str) -> tuple[list[Any], Any, Any, float]:
    """The examples of a draw, their features and vectors, and the seconds of encoding."""
    examples = datasets.drawn(datasets.examples_of(name, part), count, 0)
    examples = [replace(one, row=at) for at, one in enumerate(examples)]
    embedder = Embedder(model, normalize=False)

    def encoded() -> Any:
        task = Classification.from_examples(examples)
        features = task.features(examples, embedder.tokenizer, MAX_SEQ_LENGTH)
        count = len(examples)
        return features, label_check.text_vectors(embedder, features, count, SILENT)

    (features, vectors), seconds, _ = script.timed(encoded)
    return examples, features, vectors, seconds


# --- labels that are wrong

RATES: Final = (0.05, 0.1)
RANKINGS: Final = ("self_confidence", "normalized_margin", "confidence_weighted_entropy")
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


def flipped_found(name: str, rate: float, seed: int, given: argparse.Namespace) -> dict[str, Any]:
    """The share of flipped labels among as many as each side names first, and how many it lists."""
    examples, features, vectors, encoding = embedded(name, "train", given.size, given.model)
    task = Classification.from_examples(examples)
    random = np.random.default_rng(seed)
    flipped = random.choice(len(examples), int(rate * len(examples)), replace=False).tolist()
    noisy = list(examples)
    for at in flipped:
        others = [each for each in task.names if each != examples[at].label]
        noisy[at] = replace(noisy[at], label=str(random.choice(others)))
    task.add_labels(features, noisy)
    data = TrainingData(noisy, None, features, [], MAX_SEQ_LENGTH)

    def checked() -> Any:
        p = label_check.label_probabilities(task, data, vectors, SILENT)
        return p, label_check.label_findings(task, data, p)

    (p, found), seconds, _ = script.timed(checked)
    named = {"tidybert": [each["row"] for each in found["suspected"]]}
    if given.cleanlab is not None:
        labels = [task.label_ids[str(one.label)] for one in noisy]
        work = {"p": p.tolist(), "dtype": str(p.dtype), "labels": labels, "rankings": RANKINGS}
        named |= processes.in_environment(given.cleanlab, _CLEANLAB, work)

    def share(rows: Sequence[int]) -> float:
        return len({*flipped}.intersection(rows)) / len(flipped)

    return {
        "agreement": found["agreement"],
        "precision": {side: share(rows[: len(flipped)]) for side, rows in named.items()},
        "listed": {side: len(rows) for side, rows in named.items()},
        "found": {side: share(rows) for side, rows in named.items()},
        "seconds": encoding + seconds,
    }


def errors_table(results: script.Results) -> list[str]:
    """Markdown rows: precision at the number flipped, and what each list has, in percent."""
    cells = {"tidybert": ("precision", "tidybert")}
    cells |= {f"cleanlab, {name}": ("precision", name) for name in RANKINGS}
    for said, side in (("tidybert", "tidybert"), ("cleanlab", "find_label_issues")):
        cells |= {f"{said} lists": ("listed", side), f"{said}'s, of the flipped": ("found", side)}
    rows = []
    for name, rate in product(DATA_SETS, RATES):
        if lines := results.where(data=name, rate=rate):
            agreement = statistics.mean(100 * line["agreement"] for line in lines)
            rows.append([name, f"{rate:.0%}", f"{agreement:.1f}"])
            for key, side in cells.values():
                values = [line[key][side] for line in lines if side in line[key]]
                mean = statistics.mean(values) if values else None
                shown = "" if mean is None else f"{100 * mean:.1f}"
                rows[-1].append(f"{mean:.0f}" if shown and key == "listed" else shown)
    return script.markdown(["data", "flipped", "probe agrees", *cells], rows)


def label_errors(parser: argparse.ArgumentParser) -> None:
    """Find labels that were flipped: precision and recall of ``tidybert check`` beside cleanlab's.

        python -m benchmarks label_errors --cleanlab cleanlab/bin/python --write benchmarks/NOTES.md

    A share of the labels of --size training texts is flipped to other classes at random.  Both
    programs rank the same out-of-fold probabilities and name as many labels as were flipped, so
    that precision and recall are equal.  A data set's own errors, which both find too, count as
    mistakes here.

    cleanlab runs in an environment of its own: python -m venv cleanlab, then pip install cleanlab
    there.  Without it its columns stay empty.  Each measurement is a line of --out, and a stopped
    run continues from there.
    """
    script.add_flags(parser, "model out write seeds", out=Path("label-errors.jsonl"))
    script.add_number(parser, "size", 2000, "training texts")
    parser.add_argument("--cleanlab", help="Python of an environment that has cleanlab")
    given = parser.parse_args()
    results = script.Results(given.out)
    for name, rate, seed in product(DATA_SETS, RATES, range(1, given.seeds + 1)):
        key = {"data": name, "rate": rate, "seed": seed, "size": given.size, "model": given.model}
        results.take(key, partial(flipped_found, name, rate, seed, given))
    script.show(errors_table(results), given.write, "label-errors")


# --- texts to label next

WAYS: Final = ("random", "suggested", "uncertain alone")


def curve(name: str, way: str, seed: int, given: argparse.Namespace) -> dict[str, list[float]]:
    """Accuracy on the test part after each round; a class without labelled texts is never right."""
    examples, features, vectors, _ = embedded(name, "train", given.pool, given.model)
    test, _, test_vectors, _ = embedded(name, "dev", given.num_test, given.model)
    random = np.random.default_rng(seed)
    labelled = random.permutation(len(examples))[: given.start].tolist()
    scores = []
    for number in range(given.rounds + 1):
        known = [examples[at] for at in labelled]
        task = Classification.from_examples(known)
        read = [replace(features[at], example=number) for number, at in enumerate(labelled)]
        task.add_labels(read, known)
        probe = label_check.fitted(task, vectors[labelled], read, np.arange(len(labelled)))
        best = label_check.probabilities(probe, test_vectors).argmax(axis=1)
        right = [task.names[at] == one.label for at, one in zip(best.tolist(), test, strict=True)]
        scores.append(float(np.mean(right)))
        if number == given.rounds:
            break
        rest = sorted({*range(len(examples))} - {*labelled})
        if way == "random":
            labelled += random.permutation(rest)[: given.step].tolist()
        elif way == "suggested":
            data = TrainingData(known, None, read, [], MAX_SEQ_LENGTH)
            split = label_check.Vectors(vectors[labelled], vectors[:0], vectors[rest])
            pool = [examples[at] for at in rest]
            found = label_check.suggestions(task, data, split, pool, given.step)
            labelled += [each["row"] for each in found]
        else:
            unsure = label_check.margins(label_check.probabilities(probe, vectors[rest]))
            order = np.argsort(unsure, kind="stable")[: given.step]
            labelled += [rest[at] for at in order.tolist()]
    return {"curve": scores}


def suggested_labels(parser: argparse.ArgumentParser) -> None:
    """Accuracy by number of labels: texts that ``tidybert check --suggest`` names, or random ones.

        python -m benchmarks suggested_labels --write benchmarks/NOTES.md

    Each curve begins with the same --start random texts of --pool, and adds --step texts a round:
    at random, those that tidybert suggests, or the most uncertain ones whether they are alike or
    not.  The probe, a linear model on the frozen encoder's vectors, is fitted to the labelled texts
    and measured on at most --num-test texts of the test part, in percent, mean and deviation over
    --seeds.  Each curve is a line of --out, and a stopped run continues from there.
    """
    script.add_flags(parser, "model out write seeds", out=Path("suggested-labels.jsonl"))
    numbers = {"pool": 2000, "num_test": 1000, "start": 100, "step": 50, "rounds": 4}
    for name, default in numbers.items():
        script.add_number(parser, name.replace("_", "-"), default)
    given = parser.parse_args()
    settings = {name: getattr(given, name) for name in ("model", *numbers)}
    names, results = DATA_SETS[:2], script.Results(given.out)
    for seed, name, way in product(range(1, given.seeds + 1), names, WAYS):
        key = {"data": name, "way": way, "seed": seed, **settings}
        results.take(key, partial(curve, name, way, seed, given))
    rows = []
    for name, way in product(names, WAYS):
        curves = [line["curve"] for line in results.where(data=name, way=way)]
        cells = [script.percent(scores) for scores in zip(*curves, strict=True)]
        rows += [[name, way, *cells]] if cells else []
    labels = [str(given.start + number * given.step) for number in range(given.rounds + 1)]
    script.show(script.markdown(["data", "texts", *labels], rows), given.write, "suggested-labels")
