"""Which texts to label next: ways to choose them beside texts drawn at random."""

import argparse
import statistics
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans

from benchmarks.harness import datasets, script
from benchmarks.scores.labels import NUM_TEST, embedded, scored
from benchmarks.scores.no_labels import SETS, classes_of
from tidybert import BertClassifier
from tidybert.catalog import DEFAULT_MODEL
from tidybert.checking.label_check import fitted
from tidybert.files.text_examples import TextExample
from tidybert.finetuning.active_learning import (
    Drawn,
    Floats,
    Indices,
    NextText,
    Pool,
    margins,
)
from tidybert.page.label_probe import LabelProbe
from tidybert.tasks.answers import softmax
from tidybert.tasks.classification import Classification

DATA_SETS: Final = ("SST-2", "TREC", "BANKING77", "SMS spam")
SIZES: Final = (30, 100, 300)
STEP: Final = 10
"""Labels between two fits of the probe up to 100, and half as often from then on."""
_TOPICS: Final = 30
_NEIGHBOURS: Final = 20
_SPREAD: Final = 1.96


class _Way(Pool):
    """A way to choose: ``rank`` gives the texts that it would choose, the first first."""

    def __init__(self, vectors: Floats, seed: int) -> None:
        super().__init__(vectors, seed)
        centred = vectors - vectors.mean(axis=0)
        self.directions = centred / np.linalg.norm(centred, axis=1, keepdims=True)
        self.random = np.random.default_rng(seed)

    def _ranked(
        self, labels: Indices, probabilities: Floats | None, elsewhere: Collection[int] = ()
    ) -> list[int]:
        rest = self._order[~self.is_kept[self._order] & (labels[self._order] < 0)]
        first = rest[:0] if probabilities is None else self.rank(rest, labels, probabilities)
        return list(dict.fromkeys([*first.tolist(), *rest.tolist()]))

    def rank(self, rest: Indices, labels: Indices, p: Floats) -> Indices:
        raise NotImplementedError


class _Margin(_Way):
    def rank(self, rest: Indices, labels: Indices, p: Floats) -> Indices:
        return rest[np.argsort(margins(p)[rest], kind="stable")]


class _Entropy(_Way):
    def rank(self, rest: Indices, labels: Indices, p: Floats) -> Indices:
        return rest[np.argsort((p * np.log(p + 1e-12)).sum(1)[rest], kind="stable")]


class _Badge(_Way):
    """BADGE (Ash et al. 2020, algorithm 1): k-means++ on the gradients of the probe's loss."""

    def rank(self, rest: Indices, labels: Indices, p: Floats) -> Indices:
        errors = p[rest] - np.eye(p.shape[1], dtype=np.float32)[p[rest].argmax(1)]
        vectors = self.directions[rest]
        norms = np.square(errors).sum(1) * np.square(vectors).sum(1)
        taken = [int(norms.argmax())]
        nearest = np.full(len(rest), np.inf)
        while len(taken) < min(2 * STEP, len(rest)):
            at = taken[-1]
            products = (errors @ errors[at]) * (vectors @ vectors[at])
            nearest = np.minimum(nearest, np.maximum(norms + norms[at] - 2 * products, 0))
            nearest[taken] = 0
            taken.append(int(self.random.choice(len(rest), p=nearest / nearest.sum())))
        return rest[taken]


def typical(
    vectors: Floats, count: int, is_open: npt.NDArray[np.bool_], labels: Indices
) -> Indices:
    """TypiClust (Hacohen et al. 2022, section 3), (count,) at most.

    Of each cluster without a label the text with the most alike neighbours, the largest first.
    """
    number = int((labels >= 0).sum()) + count
    cluster = KMeans(number, n_init=1, random_state=0).fit_predict(vectors)
    sizes, covered = np.bincount(cluster, minlength=number), {*cluster[labels >= 0].tolist()}
    found = []
    for each in sorted(range(number), key=lambda at: (at in covered, -sizes[at])):
        members = np.flatnonzero((cluster == each) & is_open)
        if len(members):
            cosines = np.sort(vectors[members] @ vectors[cluster == each].T, axis=1)
            found.append(members[cosines[:, -_NEIGHBOURS - 1 :].mean(1).argmax()])
    return np.array(found[:count], dtype=np.int64)


class _TypiClust(_Way):
    """Clusters are made once for each of SIZES, as many as there will be labels."""

    def _ranked(
        self, labels: Indices, probabilities: Floats | None, elsewhere: Collection[int] = ()
    ) -> list[int]:
        done = int((labels >= 0).sum())
        if done in (0, *SIZES):
            more = next(size for size in SIZES if size > done) - done
            is_open = ~self.is_kept & (labels < 0)
            self._found = typical(self.directions, more, is_open, labels)
        found: list[int] = self._found.tolist()
        return found


class _TopicsFirst(_Margin):
    """The text nearest to the middle of each of 30 clusters, and then as _Margin."""

    def __init__(self, vectors: Floats, seed: int) -> None:
        super().__init__(vectors, seed)
        means = KMeans(_TOPICS, n_init=1, random_state=0).fit(self.directions)
        away = np.where(self.is_kept[:, None], np.inf, means.transform(self.directions))
        largest = np.argsort(-np.bincount(means.labels_), kind="stable")
        self.nearest: list[int] = away.argmin(axis=0)[largest].tolist()

    def _ranked(
        self, labels: Indices, probabilities: Floats | None, elsewhere: Collection[int] = ()
    ) -> list[int]:
        return list(
            dict.fromkeys([*self.nearest, *super()._ranked(labels, probabilities, elsewhere)])
        )


WAYS: Final[dict[str, Callable[[Floats, int], Pool]]] = {
    "random": Pool, "tidybert": Pool, "margin": _Margin, "entropy": _Entropy, "BADGE": _Badge,
    "TypiClust": _TypiClust, "one a cluster, margin": _TopicsFirst,
}  # fmt: skip
"""By name what makes the pool; of "random" its order is all that is used."""


def curve(name: str, way: str, seed: int, given: argparse.Namespace) -> dict[str, Any]:
    """Accuracy on the test part at SIZES; a class without labelled texts is never right."""
    examples, features, vectors, _ = embedded(name, "train", given.texts, given.model)
    test, _, test_vectors, _ = embedded(name, "dev", given.num_test, given.model)
    drawn = np.random.default_rng(seed).permutation(len(examples))[: given.pool]
    names = sorted({str(one.label) for one in (*examples, *test)})
    right = np.array([names.index(examples[at].label) for at in drawn])
    wanted = np.array([names.index(one.label) for one in test])
    pool = WAYS[way](vectors[drawn], seed)
    labels, asked = np.full(len(drawn), -1, dtype=np.int64), list[Drawn]()
    p, scores = None, {}
    while len(asked) < SIZES[-1]:
        left = next(size for size in SIZES if size > len(asked)) - len(asked)
        count = min(left, STEP if len(asked) < SIZES[1] else 2 * STEP)
        if way == "random":
            found = [NextText(int(at), "random") for at in pool._order[len(asked) :][:count]]
        else:
            found = pool.next(labels, asked, p, count)
        numbers = [one.number for one in found]
        labels[numbers] = right[numbers]
        asked += [one.drawn for one in found]
        known = labels >= 0
        classes, of_known = np.unique(labels[known], return_inverse=True)
        best = np.full(len(test), classes[0])
        if len(classes) > 1 and (way not in ("random", "TypiClust") or len(asked) in SIZES):
            task = Classification([names[number] for number in classes])
            taught = [
                replace(features[at], label=label)
                for at, label in zip(drawn[known], of_known.tolist(), strict=True)
            ]
            probe = fitted(task, vectors[drawn[known]], taught, np.arange(len(taught)))
            p = softmax(probe.outputs(vectors[drawn])).astype(np.float32)
            best = classes[probe.outputs(test_vectors).argmax(1)]
        if len(asked) in SIZES:
            scores[str(len(asked))] = float((best == wanted).mean())
    return {"scores": scores}


def table(results: script.Results) -> list[str]:
    """Mean accuracy in percent by data and size, and what is above random, with 95% intervals.

    A draw's difference is the mean over the data sets.
    """

    def score(name: str, way: str, seed: int, size: str) -> float:
        (line,) = results.where(data=name, way=way, seed=seed)
        return float(100 * line["scores"][size])

    seeds, rows = sorted({line["seed"] for line in results.lines}), []
    for size, way in product(map(str, SIZES), WAYS):
        cells = [
            f"{statistics.mean(score(name, way, seed, size) for seed in seeds):.1f}"
            for name in DATA_SETS
        ]
        above = [
            statistics.mean(
                score(name, way, seed, size) - score(name, "random", seed, size)
                for name in DATA_SETS
            )
            for seed in seeds
        ]
        half = _SPREAD * statistics.stdev(above) / len(seeds) ** 0.5 if len(seeds) > 1 else 0.0
        shown = "" if way == "random" else f"{statistics.mean(above):+.1f} ± {half:.1f}"
        rows.append([size, way, *cells, shown])
    return script.markdown(["labels", "texts", *DATA_SETS, "above random"], rows)


def suggested_labels(parser: argparse.ArgumentParser) -> None:
    """Accuracy by number of labels: texts as tidybert asks them, other ways, or random ones.

    Each seed draws a pool of --pool texts from --texts of the training part.  All ways but random
    have tidybert's share of texts drawn at random.  A linear model on the frozen encoder's vectors
    is fitted after each 10 labels, and measured on at most --num-test texts.
    """
    numbers = {"texts": 3000, "pool": 2000, "num_test": 1000}
    for name, default in numbers.items():
        script.add_number(parser, name.replace("_", "-"), default)
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    given = script.parse(
        parser, "model out write seeds", out=Path("suggested-labels.jsonl"), seeds=5
    )
    settings = {name: getattr(given, name) for name in ("model", *numbers)}
    results = script.Results(given.out)
    for name, way, seed in product(DATA_SETS, given.ways, range(1, given.seeds + 1)):
        key = {"data": name, "way": way, "seed": seed, **settings}
        results.take(key, partial(curve, name, way, seed, given))
    script.show(table(results), given.write, "suggested-labels")


# --- what a RUN learns from them

LEARNED: Final = ("asked", "asked, all", "random")
"""The texts that the page chooses, these with its random ones, or as many random ones."""
_NUM_LABELS: Final = 100
_POOL: Final = 3000


@cache
def _labelled_pool(name: str, model: str) -> tuple[list[TextExample], LabelProbe]:
    """Different texts of the training part with their classes' names, and their vectors."""
    names = classes_of(name)[0]
    drawn = datasets.drawn(datasets.examples_of(name, "train"), _POOL, 0)
    different = {one.text: replace(one, label=names.get(one.label, one.label)) for one in drawn}
    examples = list(different.values())
    plain = [replace(one, label=None) for one in examples]
    probe = LabelProbe(plain, model, {}, multi_label=False, opening={})
    probe.encode(lambda _done: None)
    return examples, probe


def asked(
    examples: Sequence[TextExample], probe: LabelProbe, seed: int
) -> tuple[list[int], list[Drawn]]:
    """Numbers of the texts that the page asks one after the other, and how each was drawn.

    Each gets its right label, and the probe learns it before the next is asked.
    """
    classes = sorted({str(one.label) for one in examples})
    pool = Pool(probe.vectors, seed)
    labels, numbers, drawn = np.full(len(examples), -1, dtype=np.int64), list[int](), list[Drawn]()
    while len(numbers) < min(_NUM_LABELS, len(examples)):
        labelled = [(at, (classes[labels[at]],)) for at in numbers]
        learned = probe.learn(labelled, set(), classes)
        (found,) = pool.next(labels, drawn, None if learned is None else learned.doubts)
        labels[found.number] = classes.index(str(examples[found.number].label))
        numbers.append(found.number)
        drawn.append(found.drawn)
    return numbers, drawn


def learned_from(name: str, texts: str, seed: int, model: str) -> dict[str, float]:
    """Accuracy on the test part after the default training on texts that have labels."""
    examples, probe = _labelled_pool(name, model)
    if texts == "random":
        chosen = np.random.default_rng(seed).permutation(len(examples))[:_NUM_LABELS].tolist()
    else:
        numbers, drawn = asked(examples, probe, seed)
        pairs = zip(numbers, drawn, strict=True)
        chosen = [at for at, how in pairs if "all" in texts or how == "chosen"]
    names = classes_of(name)[0]
    test = datasets.drawn(datasets.examples_of(name, "dev"), NUM_TEST, 0)
    train = [examples[at] for at in chosen]
    wanted = [replace(one, label=names.get(one.label, one.label)) for one in test]
    return scored(BertClassifier(model), train, wanted)


def asked_texts(parser: argparse.ArgumentParser) -> None:
    """What a RUN learns from 100 labels as the page asks them, beside 100 of random texts.

    The page is played with the right labels.  A fifth of its texts are random ones: "asked" leaves
    them out, as a RUN that they measure does, and "asked, all" learns from them too.
    """
    parser.add_argument("--data", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--small", default=DEFAULT_MODEL, help="MODEL (default %(default)s)")
    given = script.parse(parser, "out write seeds", out=Path("asked-texts.jsonl"), seeds=3)
    warnings.simplefilter("ignore")
    results = script.Results(given.out)
    for name, seed, texts in product(given.data, range(1, given.seeds + 1), LEARNED):
        key = {"data": name, "texts": texts, "seed": seed, "model": given.small}
        results.take(key, partial(learned_from, name, texts, seed, given.small))
    rows = [
        [name, *(
            script.percent([e["accuracy"] for e in results.where(data=name, texts=each)])
            for each in LEARNED
        )]
        for name in given.data
    ]  # fmt: skip
    script.show(script.markdown(["data", *LEARNED], rows), given.write, "asked-texts")
