"""Three ways to classify 300 tickets, in scikit-learn: words counted, frozen vectors, fine-tuning.

    python benchmarks/tickets.py

Each side has its defaults, learns from the first 300 tickets that tidybert brings and is scored on
the 154 of dev, which no side has seen.
"""

import csv
from importlib.resources import files
from pathlib import Path
from typing import Any

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from tidybert import BertClassifier, BertVectorizer

NUM_TRAIN = 300


def tickets(part: str) -> tuple[list[str], list[str]]:
    """Texts and labels of a part."""
    path = files("tidybert") / "resources" / "tickets" / f"{part}.csv"
    with path.open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    return [row["text"] for row in rows], [row["label"] for row in rows]


def sides(model: str | Path) -> dict[str, Any]:
    """The estimators by name."""
    return {
        "TfidfVectorizer, LogisticRegression": make_pipeline(
            TfidfVectorizer(), LogisticRegression()
        ),
        "BertVectorizer, LogisticRegression": make_pipeline(
            BertVectorizer(model), LogisticRegression(max_iter=1000)
        ),
        "BertClassifier": BertClassifier(model),
    }


def accuracy_of(estimator: Any, num_train: int = NUM_TRAIN) -> float:
    """The accuracy on dev after learning from the first tickets."""
    X, y = tickets("train")
    return float(estimator.fit(X[:num_train], y[:num_train]).score(*tickets("dev")))


def main() -> None:
    for name, estimator in sides("minilm").items():
        print(f"{name}: {accuracy_of(estimator):.3f}", flush=True)


if __name__ == "__main__":
    main()
