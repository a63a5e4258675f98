"""Labels: those that are wrong, and learning from few of them."""

import argparse
import math
import os
import statistics
import tempfile
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from benchmarks.harness import datasets, script
from benchmarks.scores.no_labels import classes_of
from tidybert import BertClassifier, BertTagger, BertVectorizer, finetune, zero_shot
from tidybert.catalog import DEFAULT_MODEL, find_model
from tidybert.checking import label_check
from tidybert.data.checks import TrainingData
from tidybert.files.text_examples import TextExample
from tidybert.inference.embedding import Embedder
from tidybert.system.reporter import SILENT
from tidybert.tasks.classification import Classification
from tidybert.tasks.tags.tag_files import TaggedExample

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
        named |= script.in_environment(given.cleanlab, _CLEANLAB, work)

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

    A share of the labels of --size training texts is flipped to other classes at random.  Both
    programs rank the same out-of-fold probabilities and name as many labels as were flipped, so
    that precision and recall are equal.  A data set's own errors count as mistakes here.  cleanlab
    runs in an environment of its own; without it its columns stay empty.
    """
    script.add_number(parser, "size", 2000, "training texts")
    parser.add_argument("--cleanlab", help="Python of an environment that has cleanlab")
    given = script.parse(parser, "model out write seeds", out=Path("label-errors.jsonl"))
    results = script.Results(given.out)
    for name, rate, seed in product(DATA_SETS, RATES, range(1, given.seeds + 1)):
        key = {"data": name, "rate": rate, "seed": seed, "size": given.size, "model": given.model}
        results.take(key, partial(flipped_found, name, rate, seed, given))
    script.show(errors_table(results), given.write, "label-errors")


# --- labels with doubt

WRONG: Final = 0.2
LABELS: Final = ("right", "hard", "soft")
NOISES: Final = ("confusions", "random")


@cache
def believed(texts: tuple[str, ...], model: str) -> Any:
    """(N, C) what the way without labels believes of TREC's texts, and the classes."""
    names, descriptions = classes_of("TREC")
    answers = zero_shot(texts, list(names.values()), descriptions=descriptions, model=model)
    return np.array([[one["scores"][each] for each in names.values()] for one in answers])


def softly_learned(noise: str, labels: str, size: int, seed: int, model: str) -> dict[str, float]:
    """Accuracy of the default way on TREC's test texts, of labels of which a fifth are wrong.

    "confusions" gives texts that the way without labels has wrong its answer, "random" any text
    any other class.  Soft labels are what it believes where the label is right four times in five.
    """
    train, test = parts("TREC", size, seed)
    classes = list(classes_of("TREC")[0])
    p = believed(tuple(one.text for one in train), model)
    right = np.array([classes.index(one.label) for one in train])
    random, given = np.random.default_rng(seed), right.copy()
    among = np.flatnonzero(p.argmax(1) != right) if noise == "confusions" else np.arange(size)
    wrong = random.permutation(among)[: int(WRONG * size)]
    others = (right + random.integers(1, len(classes), size)) % len(classes)
    given[wrong] = (p.argmax(1) if noise == "confusions" else others)[wrong]
    is_given = np.eye(len(classes), dtype=np.bool_)[given if labels != "right" else right]
    shares = np.where(is_given, 1.0, 0.0)
    if labels == "soft":
        shares = p * np.where(is_given, 1 - WRONG, WRONG / (len(classes) - 1))
    rows = [
        {"text": one.text, "label": dict(zip(classes, row, strict=True))}
        for one, row in zip(train, shares.tolist(), strict=True)
    ]
    trained = finetune(rows, soft=True, model=model, dev=0.0)
    answers = trained.predict([one.text for one in test])
    right_ones = [found["label"] == one.label for found, one in zip(answers, test, strict=True)]
    return {"accuracy": float(np.mean(right_ones))}


def soft_labels(parser: argparse.ArgumentParser) -> None:
    """Hard labels of which a fifth are wrong, beside soft ones: TREC by the default way.

    The wrong labels are confusions of the way without labels, or random classes; soft labels are
    its probabilities, given that a label is right four times in five.
    """
    script.add_number(parser, "size", 100, "training texts")
    parser.add_argument("--small", default=DEFAULT_MODEL, help="MODEL (default %(default)s)")
    given = script.parse(parser, "out write seeds", out=Path("soft-labels.jsonl"), seeds=5)
    results = script.Results(given.out)
    for seed, noise, labels in product(range(1, given.seeds + 1), NOISES, LABELS):
        key = {"noise": noise, "labels": labels, "size": given.size, "seed": seed}
        work = partial(softly_learned, noise, labels, given.size, seed, given.small)
        results.take(key, work)
    rows = [
        [noise, *(
            script.percent([e["accuracy"] for e in results.where(noise=noise, labels=each)])
            for each in LABELS
        )]
        for noise in NOISES
    ]  # fmt: skip
    script.show(script.markdown(["wrong labels", *LABELS], rows), given.write, "soft-labels")


# --- few labels

NUM_TEST: Final = 500
SETS: Final = (
    "SST-2", "TREC", "BANKING77", "SMS spam", "tickets", "QNLI subset", "MRPC", "QQP subset",
    "CoNLL-2003", "20 articles",
)  # fmt: skip
ARTICLES: Final = SETS[-1]
"""Paragraphs of Wikipedia by article: the set on which nothing of tidybert was chosen."""
ALL: Final = "all"
TAGGED: Final = ("CoNLL-2003",)
"""The sets whose words are tagged: their score is an F1."""
_FINE_TUNED: Final = {"head_start": "probe", "validation_fraction": 0.0, "train_batch_size": 32}
_CONTRASTIVE: Final = {"head_start": "contrastive", "num_train_epochs": 0.0}
WAYS: Final[Mapping[str, Mapping[str, Any]]] = {
    "minilm": {}, "minilm, fine-tuned": {**_FINE_TUNED, "pooling": "mean"},
    "minilm, contrastive": {**_CONTRASTIVE, "pooling": "mean"}, "default": {},
    "fine-tuned": _FINE_TUNED, "contrastive": _CONTRASTIVE,
}  # fmt: skip
"""BertClassifier's parameters by side.  "fine-tuned" takes 100 steps, in 3 to 20 epochs."""
SETFIT: Final[Mapping[str, Mapping[str, Any]]] = {
    "SetFit": {}, "SetFit, R=20": {"num_iterations": 20},
}  # fmt: skip
"""SetFit's arguments by side.  By default all pairs count, and they grow with the square of the
texts; R is what its paper calls the pairs that it draws for each text."""
SIDES: Final = ("TF-IDF", "vectors", *SETFIT, "Trainer", *WAYS)
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
arguments = setfit.TrainingArguments(seed=work["seed"], **work["arguments"], **quiet)
data = Dataset.from_dict(columns)
setfit.Trainer(model=model, args=arguments, train_dataset=data).train()
print(json.dumps([str(label) for label in model.predict(work["test"])]))
"""


class TransformersTrainer:
    """transformers' Trainer with its defaults, as an estimator."""

    def __init__(self, model: str | Path) -> None:
        self.work = SimpleNamespace(model=model)

    def fit(self, texts: Sequence[Any], labels: Sequence[str]) -> None:
        import transformers

        from benchmarks.speed.transformers_training import Texts

        self.side = Texts(Classification(sorted(set(labels))), self.work)
        self.work.max_seq_length = min(128, self.side.model.config.max_position_embeddings)
        with tempfile.TemporaryDirectory() as folder:
            quiet: Any = {"report_to": [], "disable_tqdm": True, "save_strategy": "no"}
            transformers.Trainer(
                self.side.model,
                transformers.TrainingArguments(folder, use_cpu=True, **quiet),
                data_collator=self.side.collate,
                train_dataset=self.side.encode(_examples(texts, labels)),
            ).train()

    def score(self, texts: Sequence[Any], labels: Sequence[str]) -> float:
        self.side.model.eval()
        return float(self.side.score(_examples(texts, labels))["accuracy"])


def _examples(texts: Sequence[Any], labels: Sequence[str]) -> list[TextExample]:
    given = enumerate(zip(texts, labels, strict=True))
    return [
        TextExample(text, None, label, row)
        if isinstance(text, str)
        else TextExample(text[0], text[1], label, row)
        for row, (text, label) in given
    ]


class SetFit:
    """SetFit, as an estimator; ``python`` is that of its environment."""

    def __init__(
        self, model: str | Path, python: str, seed: int, arguments: Mapping[str, Any]
    ) -> None:
        given = {"seed": seed, "arguments": dict(arguments)}
        self.work: dict[str, Any] = {"model": str(find_model(model)), **given}
        self.python = python

    def fit(self, texts: Sequence[Any], labels: Sequence[str]) -> None:
        """Keep the texts: the other process learns and answers in one call."""
        self.work["train"] = [*zip(map(_joined, texts), labels, strict=True)]

    def score(self, texts: Sequence[Any], labels: Sequence[str]) -> float:
        work = {**self.work, "test": [*map(_joined, texts)]}
        found = script.in_environment(self.python, _SETFIT, work)
        return float((np.array(found) == np.array(labels)).mean())


def _joined(text: Any) -> str:
    """A text, or the texts of a pair as one."""
    return text if isinstance(text, str) else " [SEP] ".join(text)


def build(side: str, model: str | Path, train: Sequence[Any], python: str, seed: int) -> Any:
    """The estimator of a side for these examples."""
    start = model if "minilm" in side else DEFAULT_MODEL
    if isinstance(train[0], TaggedExample):
        return BertTagger(start)
    if side in SETFIT:
        return SetFit(model, python, seed, SETFIT[side])
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


def examples_of(name: str, part: str) -> list[Any]:
    """All labelled examples of a part; a third of the articles' paragraphs are for testing."""
    if name != ARTICLES:
        return datasets.examples_of(name, part)
    return [
        TextExample(text, None, title, row)
        for row, (text, title) in enumerate(datasets.article_paragraphs(20))
        if (datasets.share_of(text) < 1 / 3) == (part == "dev")
    ]


def parts(name: str, size: int | str, seed: int) -> tuple[list[Any], list[Any]]:
    """A draw of the training part, and the texts of the test part whose labels it has."""
    train, test = (examples_of(name, part) for part in ("train", "dev"))
    if size == ALL:
        train = datasets.drawn(train, len(train), seed)
    elif isinstance(size, int):
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
    """The accuracy (of tags the F1) on the test examples after learning, and the seconds.

    The processor's are of this process and of those that it waited for.
    """

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

    used = sum(os.times()[:4])
    accuracy, seconds, _ = script.timed(score)
    used = sum(os.times()[:4]) - used
    return {"accuracy": accuracy, "seconds": round(seconds, 1), "cpu_seconds": round(used, 1)}


def tables(results: script.Results) -> list[str]:
    """Markdown: a table of the draws by class, and one of those of any class."""
    by_class = table([line for line in results.lines if "class" in str(line["size"])])
    drawn = table([line for line in results.lines if "class" not in str(line["size"])])
    return [*by_class, *([""] if by_class and drawn else []), *drawn]


def table(lines: Sequence[script.Line]) -> list[str]:
    """The accuracy of each side over the draws, and over the data; fewer draws are noted."""
    rows, sides = [], [side for side in SIDES if any(line["side"] == side for line in lines)]
    sizes = {line["size"] for line in lines}
    for size in sorted(sizes, key=lambda of: math.inf if of == ALL else int(str(of).split()[0])):
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
        apart = {*TAGGED, ARTICLES}
        classified = [draws for name, draws in found.items() if name not in apart]
        keys = {
            side: {(at, seed) for at, draws in enumerate(classified) for seed in draws[side]}
            for side in sides
        }
        whole = max(keys.values(), key=len)
        some = [draws for at, draws in enumerate(classified) if at in {at for at, _ in whole}]
        means = []
        for side in sides:
            of_side = [draws[side].values() for draws in some]
            fewest = min(map(len, of_side), default=0)
            mean = 100 * statistics.mean(map(statistics.mean, of_side)) if fewest else 0.0
            noted = "" if keys[side] >= whole else f" ({fewest})"
            means.append(f"{mean:.1f}{noted}" if fewest else "")
        rows += [[f"mean of {len(some)}", f"{size}", "", *means]] if whole else []
    return script.markdown(["data", "texts", "draws", *sides], rows) if rows else []


def small_data(parser: argparse.ArgumentParser) -> None:
    """The default beside every way to learn from few labelled texts, in accuracy or F1.

    --sizes draws texts at random, --shots so many of each class.  "default" is BertClassifier as it
    comes; "fine-tuned" and "contrastive" name a way for it.  "minilm" is BertClassifier with
    minilm, and so are its ways.  "vectors" are minilm's with a logistic regression.  Trainer is
    transformers' with its defaults, and SetFit runs with its own, in an environment that --setfit
    names (pip install setfit==1.1.3 'transformers<4.56' 'sentence-transformers<5'); both begin with
    minilm.  "SetFit, R=20" draws 20 pairs for each text, as its paper does.  To SetFit a pair is
    one text, joined by [SEP].  For CoNLL-2003 "default" and "minilm" are BertTagger.  All learn
    from the same draw, and are scored on at most 500 texts of the test part.
    """
    parser.add_argument("--data", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--sizes", nargs="+", type=int, default=[], help="texts of a draw")
    parser.add_argument("--shots", nargs="+", type=int, default=[], help="texts of each class")
    parser.add_argument("--all", action="store_true", help="also the whole training part")
    parser.add_argument("--sides", nargs="+", choices=SIDES, help="default: all that can run")
    parser.add_argument("--setfit", help="the python of an environment that has SetFit")
    script.add_number(parser, "draws", 1)
    given = script.parse(parser, "model out write", out=Path("small.jsonl"))
    # What the checks find in a small draw is not the subject here.
    warnings.simplefilter("ignore")
    results = script.Results(given.out)
    sides = given.sides or [side for side in SIDES if side not in SETFIT or given.setfit]
    if not given.setfit and {*sides} & {*SETFIT}:
        parser.error("--sides SetFit needs --setfit, the python of an environment that has it")
    sizes = [*(f"{shots} a class" for shots in given.shots), *given.sizes, *[ALL][: given.all]]
    for size, seed, name in product(sizes, range(1, given.draws + 1), given.data):
        train, test = parts(name, size, seed)
        for side in sides:
            if name not in TAGGED or side in TAGGING:
                estimator = build(side, given.model, train, given.setfit, seed)
                key = {"data": name, "size": size, "side": side, "seed": seed}
                results.take(key, partial(scored, estimator, train, test))
    script.show(tables(results), given.write, "small-data")
