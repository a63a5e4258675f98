"""The default beside every way to learn from few labelled texts, in accuracy.

    python -m benchmarks small_data --sizes 50 100 300 1000 --draws 5 --write docs/results.md
    python -m benchmarks small_data --shots 8 16 --draws 5 --write docs/results.md

--sizes draws texts at random, --shots so many of each class.  "default" is BertClassifier as it
comes.  The other sides of tidybert name a way; with the mean the head reads the mean of all tokens.
"vectors" are BertVectorizer's with a logistic regression, as sentence-transformers' users do it.
Trainer is transformers' with its defaults.  SetFit runs with its defaults, in an environment of its
own that --setfit names (pip install setfit==1.1.3 'transformers<4.56' 'sentence-transformers<5');
its texts of a pair are one text, joined by [SEP].  All learn from the same draw of the training
part, and are scored on at most 500 texts of the test part.  Each measurement is a line of --out,
and a stopped run continues from there.
"""

import statistics
import tempfile
import time
import warnings
from collections import Counter
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
from benchmarks.harness.processes import in_environment
from benchmarks.harness.tables import Line, Results, markdown, percent, results_parser, show
from tidybert import BertClassifier, BertVectorizer
from tidybert.catalog import find_model

NUM_TEST: Final = 500
SETS: Final = (
    "SST-2", "TREC", "BANKING77", "SMS spam", "tickets", "QNLI subset", "MRPC", "QQP subset",
)  # fmt: skip
_PROBE: Final = {"head_start": "probe", "validation_fraction": 0.0}
_CONTRAST: Final = {"head_start": "contrastive", "num_train_epochs": 0.0}
WAYS: Final[Mapping[str, Mapping[str, Any]]] = {
    "default": {},
    "3 epochs, [CLS]": {**_PROBE, "pooling": "cls", "num_train_epochs": 3.0},
    "3 epochs, mean": {**_PROBE, "pooling": "mean", "num_train_epochs": 3.0},
    "fine-tuned, [CLS]": {**_PROBE, "pooling": "cls"},
    "fine-tuned, mean": {**_PROBE, "pooling": "mean"},
    "contrastive, [CLS]": {**_CONTRAST, "pooling": "cls"},
    "contrastive, mean": {**_CONTRAST, "pooling": "mean"},
}
"""BertClassifier's parameters by side.  "fine-tuned" takes 100 steps, in 3 to 20 epochs."""
SIDES: Final = ("TF-IDF", "vectors", "SetFit", "Trainer", *WAYS)
_SETFIT: Final = """
import json, sys, setfit
from datasets import Dataset
work = json.load(sys.stdin)
train = work["train"]
model = setfit.SetFitModel.from_pretrained(work["model"], local_files_only=True)
quiet = {"save_strategy": "no", "report_to": "none", "show_progress_bar": False}
columns = {"text": [text for text, _ in train], "label": [label for _, label in train]}
arguments = setfit.TrainingArguments(seed=work["seed"], **quiet)
data = Dataset.from_dict(columns)
setfit.Trainer(model=model, args=arguments, train_dataset=data).train()
print(json.dumps([str(label) for label in model.predict(work["test"])]))
"""


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


class SetFit:
    """SetFit with its defaults, as an estimator; ``python`` is that of its environment."""

    def __init__(self, model: str | Path, python: str, seed: int) -> None:
        self.work: dict[str, Any] = {"model": str(find_model(model)), "seed": seed}
        self.python = python

    def fit(self, texts: Sequence[Any], labels: Sequence[str]) -> None:
        """Keep the texts: the other process learns and answers in one call."""
        self.work["train"] = [*zip(map(_joined, texts), labels, strict=True)]

    def score(self, texts: Sequence[Any], labels: Sequence[str]) -> float:
        work = {**self.work, "test": [*map(_joined, texts)]}
        found = in_environment(self.python, _SETFIT, work)
        return float((np.array(found) == np.array(labels)).mean())


def _joined(text: Any) -> str:
    """A text, or the texts of a pair as one."""
    return text if isinstance(text, str) else " [SEP] ".join(text)


def build(side: str, model: str | Path, train: Sequence[Any], python: str, seed: int) -> Any:
    """The estimator of a side for these examples."""
    if side == "SetFit":
        return SetFit(model, python, seed)
    if side == "TF-IDF":
        is_pair = train[0].text_pair is not None
        words = TfidfVectorizer(preprocessor=" ".join if is_pair else None)
        return make_pipeline(words, LogisticRegression())
    if side == "vectors":
        return make_pipeline(BertVectorizer(model), LogisticRegression(max_iter=1000))
    if side == "Trainer":
        return TransformersTrainer(model)
    given = dict(WAYS[side])
    if side.startswith("fine-tuned"):
        given["num_train_epochs"] = min(max(3.0, 3200 / len(train)), 20.0)
    return BertClassifier(model, **given)


def parts(name: str, size: int | str, seed: int) -> tuple[list[Any], list[Any]]:
    """A draw of the training part, and the texts of the test part whose labels it has."""
    train = examples_of(name, "train")
    if isinstance(size, int):
        train = drawn(train, size, seed)
    else:
        train = of_each_class(train, int(size.split()[0]), seed)
    known = {one.label for one in train}
    test = [one for one in examples_of(name, "dev") if one.label in known]
    return train, drawn(test, NUM_TEST, 0)


def of_each_class(examples: Sequence[Any], shots: int, seed: int) -> list[Any]:
    """So many examples of each class, or all where a class has fewer."""
    counts: Counter[str] = Counter()
    chosen = []
    for at in np.random.default_rng(seed).permutation(len(examples)).tolist():
        one = examples[at]
        if counts[one.label] < shots:
            counts[one.label] += 1
            chosen.append(one)
    return chosen


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
    """Markdown rows: the accuracy of each measured side, mean and deviation over the draws."""
    rows, sides = [], [side for side in SIDES if results.where(side=side)]
    sizes = {line["size"] for line in results.lines}
    for size in sorted(sizes, key=lambda each: (isinstance(each, int), int(str(each).split()[0]))):
        of_size = results.where(size=size)
        for name in sorted({line["data"] for line in of_size}):
            found = [results.where(size=size, data=name, side=side) for side in sides]
            cells = [percent([line["accuracy"] for line in lines]) for lines in found]
            rows.append([name, f"{size}", f"{max(map(len, found))}", *cells])
        rows += mean_row(of_size, sides)
    return markdown(["data", "texts", "draws", *sides], rows)


def mean_row(lines: Sequence[Line], sides: Sequence[str]) -> list[list[str]]:
    """The means over the sets that every side of a size has; empty where a side lacks a draw."""
    draws = {side: {(e["data"], e["seed"]) for e in lines if e["side"] == side} for side in sides}
    names = {line["data"] for line in lines}
    for found in filter(None, draws.values()):
        names &= {name for name, _ in found}
    whole = {one for found in draws.values() for one in found if one[0] in names}
    if not whole:
        return []
    cells = []
    for side in sides:
        scores = [
            [e["accuracy"] for e in lines if (e["data"], e["side"]) == (name, side)]
            for name in names
        ]
        mean = statistics.mean(map(statistics.mean, scores)) if whole <= draws[side] else None
        cells.append("" if mean is None else f"{100 * mean:.1f}")
    return [[f"mean of {len(names)}", f"{lines[0]['size']}", "", *cells]]


def main() -> None:
    parser = results_parser(__doc__, "small")
    parser.add_argument("--data", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--sizes", nargs="+", type=int, default=[], help="texts of a draw")
    parser.add_argument("--shots", nargs="+", type=int, default=[], help="texts of each class")
    parser.add_argument("--sides", nargs="+", choices=SIDES, help="default: all that can run")
    parser.add_argument("--setfit", help="the python of an environment that has SetFit")
    parser.add_argument("--draws", type=int, default=1)
    given = parser.parse_args()
    # What the checks find in a small draw is not the subject here.
    warnings.simplefilter("ignore")
    results = Results(given.out)
    sides = given.sides or [side for side in SIDES if side != "SetFit" or given.setfit]
    if "SetFit" in sides and not given.setfit:
        parser.error("--sides SetFit needs --setfit, the python of an environment that has it")
    sizes = [*(f"{shots} a class" for shots in given.shots), *given.sizes]
    for size, seed, name in product(sizes, range(1, given.draws + 1), given.data):
        train, test = parts(name, size, seed)
        for side in sides:
            estimator = build(side, given.model, train, given.setfit, seed)
            key = {"data": name, "size": size, "side": side, "seed": seed}
            results.take(key, partial(scored, estimator, train, test))
    show(table(results), given.write, "small-data")


if __name__ == "__main__":
    main()
