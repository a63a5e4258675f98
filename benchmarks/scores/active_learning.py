"""Which texts to label next: ways to choose them beside texts drawn at random."""

import argparse
import statistics
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans

from benchmarks.harness import script
from benchmarks.scores.labels import embedded
from tidybert.checking.label_check import fitted
from tidybert.finetuning.active_learning import (
    Drawn,
    Floats,
    Indices,
    NextText,
    Pool,
    margins,
)
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
