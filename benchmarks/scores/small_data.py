"""The default beside every way to learn from 50 to 1,000 labelled texts, in accuracy.

    python -m benchmarks small_data --sizes 50 100 300 1000 --draws 5 --write docs/results.md

"default" is BertClassifier as it comes.  The other sides of tidybert name a way; with the mean the
head reads the mean of all tokens.  "vectors" are BertVectorizer's with a logistic regression, as
sentence-transformers' users do it.  Trainer is transformers' with its defaults.  All learn from the
same random draw of the training part, and are scored on at most 500 texts of the test part.  Each
measurement is a line of --out, and a stopped run continues from there.
"""

import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from benchmarks.harness.datasets import drawn, examples_of
from benchmarks.harness.tables import Results, markdown, results_parser, show
from benchmarks.scores.few import DATA
from tidybert import BertClassifier, BertVectorizer
from tidybert.catalog import find_model

NUM_TEST: Final = 500
SETS: Final = (*DATA, "MRPC", "QQP subset")
_PROBE: Final = {"head_start": "probe", "validation_fraction": 0.0}
WAYS: Final[Mapping[str, Mapping[str, Any]]] = {
    "default": {},
    "3 epochs, [CLS]": {**_PROBE, "pooling": "cls", "num_train_epochs": 3.0},
    "3 epochs, mean": {**_PROBE, "pooling": "mean", "num_train_epochs": 3.0},
    "100 steps, mean": {**_PROBE, "pooling": "mean"},
    "contrastive, mean": {"head_start": "contrastive", "pooling": "mean", "num_train_epochs": 0.0},
}
"""BertClassifier's parameters by side.  Of 100 steps the epochs follow from the number of texts."""
SIDES: Final = ("TF-IDF", "vectors", "Trainer", *WAYS)


class TransformersTrainer:
    """transformers' Trainer with its defaults, as an estimator."""

    def __init__(self, model: str | Path) -> None:
        self.model = str(find_model(model))

    def fit(self, texts: Sequence[Any], labels: Sequence[str]) -> None:
        import transformers

        self.names = sorted(set(labels))
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(self.model)
        network = transformers.AutoModelForSequenceClassification.from_pretrained(
            self.model, num_labels=len(self.names)
        )
        self.length = min(128, network.config.max_position_embeddings)
        with tempfile.TemporaryDirectory() as folder:
            quiet: Any = {"report_to": [], "disable_tqdm": True, "save_strategy": "no"}
            arguments = transformers.TrainingArguments(folder, use_cpu=True, **quiet)
            self.trainer = transformers.Trainer(
                network,
                arguments,
                data_collator=transformers.DataCollatorWithPadding(self.tokenizer),
                train_dataset=self._encoded(texts, labels),
            )
            self.trainer.train()

    def score(self, texts: Sequence[Any], labels: Sequence[str]) -> float:
        found = self.trainer.predict(self._encoded(texts, labels)).predictions.argmax(1)
        of = [self.names.index(label) for label in labels]
        return float((found == np.array(of)).mean())

    def _encoded(self, texts: Sequence[Any], labels: Sequence[str]) -> list[dict[str, Any]]:
        rows = [[text] if isinstance(text, str) else text for text in texts]
        return [
            {
                **self.tokenizer(*row, truncation=True, max_length=self.length),
                "label": self.names.index(of),
            }
            for row, of in zip(rows, labels, strict=True)
        ]


def build(side: str, model: str | Path, train: Sequence[Any]) -> Any:
    """The estimator of a side for these examples."""
    if side == "TF-IDF":
        is_pair = train[0].text_pair is not None
        words = TfidfVectorizer(preprocessor=" ".join if is_pair else None)
        return make_pipeline(words, LogisticRegression())
    if side == "vectors":
        return make_pipeline(BertVectorizer(model), LogisticRegression(max_iter=1000))
    if side == "Trainer":
        return TransformersTrainer(model)
    given = dict(WAYS[side])
    if side.startswith("100 steps"):
        given["num_train_epochs"] = max(3.0, 3200 / len(train))
    return BertClassifier(model, **given)


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
    """Markdown rows: the mean accuracy over draws of each measured side, and the mean of a size."""
    rows, sides = [], [side for side in SIDES if results.where(side=side)]
    for size in sorted({line["size"] for line in results.lines}):
        found: dict[str, list[float]] = {}
        for name in sorted({line["data"] for line in results.where(size=size)}):
            known = [results.where(size=size, data=name, side=side) for side in sides]
            found[name] = [
                100 * float(np.mean([line["accuracy"] for line in lines] or [np.nan]))
                for lines in known
            ]
        means = [sum(scores) / len(found) for scores in zip(*found.values(), strict=True)]
        for name, scores in {**found, "mean": means}.items():
            draws = len({line["seed"] for line in results.where(size=size)})
            cells = ("" if np.isnan(each) else f"{each:.1f}" for each in scores)
            rows.append([name, f"{size}", f"{draws}", *cells])
    return markdown(["data", "texts", "draws", *sides], rows)


def main() -> None:
    parser = results_parser(__doc__, "small")
    parser.add_argument("--data", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--sizes", nargs="+", type=int, default=[300])
    parser.add_argument("--sides", nargs="+", default=list(SIDES), choices=SIDES)
    parser.add_argument("--draws", type=int, default=1)
    given = parser.parse_args()
    # What the checks find in a small draw is not the subject here.
    warnings.simplefilter("ignore")
    results = Results(given.out)
    for size, seed, name in product(given.sizes, range(1, given.draws + 1), given.data):
        train, test = parts(name, size, seed)
        for side in given.sides:
            estimator = build(side, given.model, train)
            key = {"data": name, "size": size, "side": side, "seed": seed}
            results.take(key, partial(scored, estimator, train, test))
    show(table(results), given.write, "small-data")


if __name__ == "__main__":
    main()
