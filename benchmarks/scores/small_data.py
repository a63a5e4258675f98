"""The default beside every way to learn from few labelled texts, in accuracy or F1.

    python -m benchmarks small_data --sizes 50 100 300 1000 --draws 5 --write benchmarks/NOTES.md
    python -m benchmarks small_data --shots 8 16 --draws 5 --write benchmarks/NOTES.md

--sizes draws texts at random, --shots so many of each class.  "default" is BertClassifier as it
comes, which begins with tidybert-small; "fine-tuned" and "contrastive" name a way for it, for pairs
too.  "minilm" is BertClassifier with minilm, and so are its ways.  "vectors" are minilm's with a
logistic regression, as sentence-transformers' users do it.  Trainer is transformers' with its
defaults, and SetFit runs with its own, in an environment that --setfit names (pip install
setfit==1.1.3 'transformers<4.56' 'sentence-transformers<5'); both begin with minilm.  To SetFit a
pair is one text, joined by [SEP].  For CoNLL-2003 "default" and
"minilm" are BertTagger, and there is no other side.  All learn from the same draw of the training
part, and are scored on at most 500 texts of the test part.  Each measurement is a line of --out,
and a stopped run continues from there.
"""

import argparse
import statistics
import tempfile
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

from benchmarks.harness import datasets, processes, script
from tidybert import BertClassifier, BertTagger, BertVectorizer
from tidybert.catalog import DEFAULT_MODEL, find_model
from tidybert.tasks.tags.tag_files import TaggedExample

NUM_TEST: Final = 500
SETS: Final = (
    "SST-2", "TREC", "BANKING77", "SMS spam", "tickets", "QNLI subset", "MRPC", "QQP subset",
    "CoNLL-2003",
)  # fmt: skip
TAGGED: Final = ("CoNLL-2003",)
"""The sets whose words are tagged: their score is an F1."""
_FINE_TUNED: Final = {"head_start": "probe", "validation_fraction": 0.0, "train_batch_size": 32}
_CONTRASTIVE: Final = {"head_start": "contrastive", "num_train_epochs": 0.0}
WAYS: Final[Mapping[str, Mapping[str, Any]]] = {
    "minilm": {},
    "minilm, fine-tuned": {**_FINE_TUNED, "pooling": "mean"},
    "minilm, contrastive": {**_CONTRASTIVE, "pooling": "mean"},
    "default": {},
    "fine-tuned": _FINE_TUNED,
    "contrastive": _CONTRASTIVE,
}
"""BertClassifier's parameters by side.  "fine-tuned" takes 100 steps, in 3 to 20 epochs."""
SIDES: Final = ("TF-IDF", "vectors", "SetFit", "Trainer", *WAYS)
TAGGING: Final = ("minilm", "default")
"""The sides that tag words."""
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
        auto = transformers.AutoModelForSequenceClassification
        network = auto.from_pretrained(self.model, num_labels=len(self.names))
        self.length = min(128, network.config.max_position_embeddings)
        with tempfile.TemporaryDirectory() as folder:
            quiet: Any = {"report_to": [], "disable_tqdm": True, "save_strategy": "no"}
            self.trainer = transformers.Trainer(
                network,
                transformers.TrainingArguments(folder, use_cpu=True, **quiet),
                data_collator=transformers.DataCollatorWithPadding(self.tokenizer),
                train_dataset=self._encoded(texts, labels),
            )
            self.trainer.train()

    def score(self, texts: Sequence[Any], labels: Sequence[str]) -> float:
        found = self.trainer.predict(self._encoded(texts, labels))
        return float((found.predictions.argmax(1) == found.label_ids).mean())

    def _encoded(self, texts: Sequence[Any], labels: Sequence[str]) -> list[dict[str, Any]]:
        cut = {"truncation": True, "max_length": self.length}
        rows = ([text] if isinstance(text, str) else text for text in texts)
        return [
            {**self.tokenizer(*row, **cut), "label": self.names.index(label)}
            for row, label in zip(rows, labels, strict=True)
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
        found = processes.in_environment(self.python, _SETFIT, work)
        return float((np.array(found) == np.array(labels)).mean())


def _joined(text: Any) -> str:
    """A text, or the texts of a pair as one."""
    return text if isinstance(text, str) else " [SEP] ".join(text)


def build(side: str, model: str | Path, train: Sequence[Any], python: str, seed: int) -> Any:
    """The estimator of a side for these examples."""
    start = model if "minilm" in side else DEFAULT_MODEL
    if isinstance(train[0], TaggedExample):
        return BertTagger(start)
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
    if "fine-tuned" in side:
        given["num_train_epochs"] = min(max(3.0, 3200 / len(train)), 20.0)
    return BertClassifier(start, **given)


def parts(name: str, size: int | str, seed: int) -> tuple[list[Any], list[Any]]:
    """A draw of the training part, and the texts of the test part whose labels it has."""
    train, test = (datasets.examples_of(name, part) for part in ("train", "dev"))
    if isinstance(size, int):
        train = datasets.drawn(train, size, seed)
    else:
        train = of_each_class(train, int(size.split()[0]), seed)

    def labels(example: Any) -> Sequence[Any]:
        return example.tags or () if isinstance(example, TaggedExample) else (example.label,)

    known = {label for one in train for label in labels(one)}
    test = [one for one in test if known.issuperset(labels(one))]
    return train, datasets.drawn(test, NUM_TEST, 0)


def of_each_class(examples: Sequence[Any], shots: int, seed: int) -> list[Any]:
    """So many examples of each class, or all where a class has fewer."""
    counts: Counter[str] = Counter()
    chosen = []
    for one in datasets.drawn(examples, len(examples), seed):
        counts[one.label] += 1
        if counts[one.label] <= shots:
            chosen.append(one)
    return chosen


def scored(estimator: Any, train: Sequence[Any], test: Sequence[Any]) -> dict[str, float]:
    """The accuracy (of tags the F1) on the test examples after learning, and the seconds."""

    def columns(examples: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Texts, rows of two, or words; and labels, or tags."""
        if isinstance(examples[0], TaggedExample):
            return [one.words for one in examples], [one.tags for one in examples]
        pairs = [(one.text, one.text_pair) for one in examples]
        texts = [text if other is None else (text, other) for text, other in pairs]
        return texts, [one.label for one in examples]

    def score() -> float:
        estimator.fit(*columns(train))
        return float(estimator.score(*columns(test)))

    accuracy, seconds, _ = script.timed(score)
    return {"accuracy": accuracy, "seconds": round(seconds, 1)}


def tables(results: script.Results) -> list[str]:
    """Markdown: a table of the draws by class, and one of those of any class."""
    by_class = table([line for line in results.lines if not isinstance(line["size"], int)])
    drawn = table([line for line in results.lines if isinstance(line["size"], int)])
    return [*by_class, *([""] if by_class and drawn else []), *drawn]


def table(lines: Sequence[script.Line]) -> list[str]:
    """The accuracy of each measured side, mean and deviation over the draws, and over the data.

    A mean over the data has all draws of the side that has the most, or is empty.
    """
    rows, sides = [], [side for side in SIDES if any(line["side"] == side for line in lines)]
    for size in sorted({line["size"] for line in lines}, key=lambda of: int(str(of).split()[0])):
        of_size = [line for line in lines if line["size"] == size]
        # By data and side, the accuracy of each draw.
        found: dict[str, dict[str, dict[int, float]]] = {
            name: {side: {} for side in sides} for name in sorted({e["data"] for e in of_size})
        }
        for line in of_size:
            found[line["data"]][line["side"]][line["seed"]] = line["accuracy"]
        for name, draws in found.items():
            most = max(map(len, draws.values()))
            # A figure of fewer draws says so.
            cells = [
                script.percent(list(each.values()))
                + (f" ({len(each)})" if 0 < len(each) < most else "")
                for each in draws.values()
            ]
            rows.append([name, f"{size}", f"{most}", *cells])
        classified = [draws for name, draws in found.items() if name not in TAGGED]
        keys = {
            side: {(at, seed) for at, draws in enumerate(classified) for seed in draws[side]}
            for side in sides
        }
        whole = max(keys.values(), key=len)
        some = [draws for at, draws in enumerate(classified) if at in {at for at, _ in whole}]
        means = [
            f"{100 * statistics.mean(statistics.mean(draws[side].values()) for draws in some):.1f}"
            if keys[side] >= whole and whole
            else ""
            for side in sides
        ]
        rows += [[f"mean of {len(some)}", f"{size}", "", *means]] if whole else []
    return script.markdown(["data", "texts", "draws", *sides], rows) if rows else []


def main(parser: argparse.ArgumentParser) -> None:
    script.add_flags(parser, "model out write", out=Path("small.jsonl"))
    parser.add_argument("--data", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--sizes", nargs="+", type=int, default=[], help="texts of a draw")
    parser.add_argument("--shots", nargs="+", type=int, default=[], help="texts of each class")
    parser.add_argument("--sides", nargs="+", choices=SIDES, help="default: all that can run")
    parser.add_argument("--setfit", help="the python of an environment that has SetFit")
    script.add_number(parser, "draws", 1)
    given = parser.parse_args()
    # What the checks find in a small draw is not the subject here.
    warnings.simplefilter("ignore")
    results = script.Results(given.out)
    sides = given.sides or [side for side in SIDES if side != "SetFit" or given.setfit]
    if "SetFit" in sides and not given.setfit:
        parser.error("--sides SetFit needs --setfit, the python of an environment that has it")
    sizes = [*(f"{shots} a class" for shots in given.shots), *given.sizes]
    for size, seed, name in product(sizes, range(1, given.draws + 1), given.data):
        train, test = parts(name, size, seed)
        for side in sides:
            if name not in TAGGED or side in TAGGING:
                estimator = build(side, given.model, train, given.setfit, seed)
                key = {"data": name, "size": size, "side": side, "seed": seed}
                results.take(key, partial(scored, estimator, train, test))
    script.show(tables(results), given.write, "small-data")
