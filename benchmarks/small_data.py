"""Classify a few hundred texts in scikit-learn: words counted, frozen vectors, fine-tuning.

    python benchmarks/small_data.py --sizes 100 300 600 --write docs/scikit-learn.md

Each side has its defaults.  "BertClassifier, held out" keeps a fifth of the texts to choose its
epoch (validation_fraction=0.2), and "BertClassifier, mean" has pooling="mean".  All learn from the
same random draw of the training part, and are scored on at most 500 texts of the test part.  Each
measurement is a line of --out, and a stopped run continues from there.  The data folder is
TIDYBERT_DATA or ../shared/data; the tickets come with tidybert.
"""

import argparse
import json
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from few import DATA
from head_start import drawn, examples_of
from side_by_side import show
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from tidybert import BertClassifier, BertVectorizer

NUM_TEST: Final = 500
SIDES: Final = (
    "TF-IDF",
    "BertVectorizer",
    "BertClassifier",
    "BertClassifier, held out",
    "BertClassifier, mean",
)
"""The first two with a logistic regression."""


def build(side: str, model: str | Path, is_pair: bool) -> Any:
    """The estimator of a side."""
    if side == "TF-IDF":
        return make_pipeline(
            TfidfVectorizer(preprocessor=" ".join if is_pair else None), LogisticRegression()
        )
    if side == "BertVectorizer":
        return make_pipeline(BertVectorizer(model), LogisticRegression(max_iter=1000))
    share = 0.2 if side.endswith("held out") else 0.0
    pooling: Any = "mean" if side.endswith("mean") else None
    return BertClassifier(model, validation_fraction=share, pooling=pooling)


def parts(name: str, size: int, seed: int) -> tuple[list[Any], list[Any]]:
    """A draw of the training part, and the texts of the test part whose labels it has."""
    train = drawn(examples_of(name, "train"), size, seed)
    known = {one.label for one in train}
    test = [one for one in examples_of(name, "dev") if one.label in known]
    return train, drawn(test, NUM_TEST, 0)


def texts_of(examples: Sequence[Any]) -> list[Any]:
    """Texts, or rows of two."""
    return [one.text if one.text_pair is None else (one.text, one.text_pair) for one in examples]


def accuracy_of(estimator: Any, train: Sequence[Any], test: Sequence[Any]) -> float:
    """The accuracy on the test examples after learning from the others."""
    estimator.fit(texts_of(train), [one.label for one in train])
    return float(estimator.score(texts_of(test), [one.label for one in test]))


def table(results: Sequence[dict[str, Any]]) -> list[str]:
    """Markdown rows: the accuracy of each side in percent, and the mean of each size."""
    lines = [f"| data | texts | {' | '.join(SIDES)} |", "|---" * (len(SIDES) + 2) + "|"]
    found = {(each["size"], each["data"], each["side"]): each["accuracy"] for each in results}
    for size in sorted({size for size, _, _ in found}):
        names = sorted({name for of_size, name, _ in found if of_size == size})
        sums = dict.fromkeys(SIDES, 0.0)
        for name in names:
            scores = [100 * found.get((size, name, side), float("nan")) for side in SIDES]
            lines.append(f"| {name} | {size} | {' | '.join(f'{each:.1f}' for each in scores)} |")
            sums = {side: sums[side] + each for side, each in zip(SIDES, scores, strict=True)}
        means = [f"{sums[side] / len(names):.1f}" for side in SIDES]
        lines.append(f"| mean | {size} | {' | '.join(means)} |")
    return lines


def main() -> None:
    """Measure what --out lacks, then print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=DATA)
    parser.add_argument("--sizes", nargs="+", type=int, default=[300])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("small.jsonl"))
    parser.add_argument("--write", type=Path, help="write the table between its marks in this file")
    given = parser.parse_args()
    # What the checks find in a small draw is not the subject here.
    warnings.simplefilter("ignore")
    results: list[dict[str, Any]] = []
    if given.out.exists():
        results = [json.loads(line) for line in given.out.read_text().splitlines()]
    done = {(each["data"], each["size"], each["side"]) for each in results}
    for size in given.sizes:
        for name in given.data:
            train, test = parts(name, size, given.seed)
            for side in SIDES:
                if (name, size, side) in done:
                    continue
                estimator = build(side, given.model, train[0].text_pair is not None)
                begin = time.perf_counter()
                score = accuracy_of(estimator, train, test)
                seconds = round(time.perf_counter() - begin, 1)
                one = {"data": name, "size": size, "side": side, "accuracy": score}
                results.append({**one, "seconds": seconds})
                with given.out.open("a") as file:
                    file.write(json.dumps(results[-1]) + "\n")
                print(json.dumps(results[-1]), flush=True)
    show(table(results), given.write, "small-data")


if __name__ == "__main__":
    main()
