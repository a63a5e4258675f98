"""Classify a few hundred texts in scikit-learn: words counted, frozen vectors, fine-tuning.

    python -m benchmarks small_data --sizes 100 300 600 --write docs/scikit-learn.md

Each side has its defaults.  "BertClassifier, held out" keeps a fifth of the texts to choose its
epoch (validation_fraction=0.2), and "BertClassifier, mean" has pooling="mean".  All learn from the
same random draw of the training part, and are scored on at most 500 texts of the test part.  Each
measurement is a line of --out, and a stopped run continues from there.
"""

import time
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from benchmarks.harness.datasets import drawn, examples_of
from benchmarks.harness.tables import Results, markdown, results_parser, show
from benchmarks.scores.few import DATA
from tidybert import BertClassifier, BertVectorizer

NUM_TEST: Final = 500
SIDES: Final = (
    "TF-IDF",
    "BertVectorizer",
    "BertVectorizer, unit",
    "BertClassifier",
    "BertClassifier, held out",
    "BertClassifier, mean",
)
"""The first three with a logistic regression; unit is ``normalize=True``."""


def build(side: str, model: str | Path, is_pair: bool) -> Any:
    """The estimator of a side."""
    if side == "TF-IDF":
        return make_pipeline(
            TfidfVectorizer(preprocessor=" ".join if is_pair else None), LogisticRegression()
        )
    if side.startswith("BertVectorizer"):
        vectorizer = BertVectorizer(model, normalize=side.endswith("unit"))
        return make_pipeline(vectorizer, LogisticRegression(max_iter=1000))
    share = 0.2 if side.endswith("held out") else 0.0
    pooling: Any = "mean" if side.endswith("mean") else None
    return BertClassifier(model, validation_fraction=share, pooling=pooling)


def parts(name: str, size: int, seed: int) -> tuple[list[Any], list[Any]]:
    """A draw of the training part, and the texts of the test part whose labels it has."""
    train = drawn(examples_of(name, "train"), size, seed)
    known = {one.label for one in train}
    test = [one for one in examples_of(name, "dev") if one.label in known]
    return train, drawn(test, NUM_TEST, 0)


def scored(estimator: Any, train: Sequence[Any], test: Sequence[Any]) -> dict[str, float]:
    """The accuracy on the test examples after learning from the others, and the seconds."""
    begin = time.perf_counter()
    estimator.fit(_texts(train), [one.label for one in train])
    accuracy = float(estimator.score(_texts(test), [one.label for one in test]))
    return {"accuracy": accuracy, "seconds": round(time.perf_counter() - begin, 1)}


def _texts(examples: Sequence[Any]) -> list[Any]:
    """Texts, or rows of two."""
    return [one.text if one.text_pair is None else (one.text, one.text_pair) for one in examples]


def table(results: Results) -> list[str]:
    """Markdown rows: the accuracy of each side in percent, and the mean of each size."""
    rows = []
    for size in sorted({line["size"] for line in results.lines}):
        found: dict[str, list[float]] = {}
        for name in sorted({line["data"] for line in results.where(size=size)}):
            known = {line["side"]: line for line in results.where(size=size, data=name)}
            nothing = {"accuracy": float("nan")}
            found[name] = [100 * known.get(side, nothing)["accuracy"] for side in SIDES]
        means = [sum(scores) / len(found) for scores in zip(*found.values(), strict=True)]
        for name, scores in {**found, "mean": means}.items():
            rows.append([name, f"{size}", *(f"{each:.1f}" for each in scores)])
    return markdown(["data", "texts", *SIDES], rows)


def main() -> None:
    parser = results_parser(__doc__, "small")
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=DATA)
    parser.add_argument("--sizes", nargs="+", type=int, default=[300])
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    # What the checks find in a small draw is not the subject here.
    warnings.simplefilter("ignore")
    results = Results(given.out)
    for size in given.sizes:
        for name in given.data:
            train, test = parts(name, size, given.seed)
            for side in SIDES:
                estimator = build(side, given.model, train[0].text_pair is not None)
                key = {"data": name, "size": size, "side": side}
                results.take(key, partial(scored, estimator, train, test))
    show(table(results), given.write, "small-data")
