"""Active learning: which texts to label next, and the classes of the rest by the labels so far.

Every fifth text that is asked is drawn at random until there are 30, then every tenth.  These are
an honest sample of all texts, so they measure a model.  The others are chosen to teach it.  Until
there are two labels a class, that is one text a cluster, the most typical one (TypiClust, Hacohen
et al. 2022, section 3); then those of which the probe is least sure (Settles 2009, section 3.1).
benchmarks/NOTES.md compares ways to choose.  N texts, H width, C classes.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int64]
Drawn = Literal["random", "chosen"]
"""How a text came to be asked: the values of the column ``drawn``."""

OFTEN: Final = 5
"""One of so many asked texts is drawn at random at first."""
FIRST_RANDOM: Final = 30
"""So many random ones come that often, enough for a first interval."""
SELDOM: Final = 10
"""One of so many asked texts is drawn at random from then on."""
FIRST_CLUSTERS: Final = 30
"""Clusters of the texts at first; twice as many whenever as many texts have labels."""
A_CLASS: Final = 2
"""Labels a class, on average, from which the probe chooses."""
NEIGHBOURS: Final = 21
"""A text's own cosine is one of those that say how typical it is."""
MOST_CLUSTERED: Final = 5000


def num_random(num_asked: int) -> int:
    """How many of so many asked texts are drawn at random."""
    first = OFTEN * FIRST_RANDOM
    return min(num_asked // OFTEN, FIRST_RANDOM) + max(0, num_asked - first) // SELDOM


@dataclass(frozen=True)
class NextText:
    """A text to label next: its number among the vectors, and how it came to be asked."""

    number: int
    drawn: Drawn


class Pool:
    """Texts of which some have labels, and which of them to label next.

    Equal arguments give equal texts.  The random ones are set aside from the start, and never
    chosen: so they are a random sample of all texts, whatever the labels are.

    Args:
        vectors: (N, H) of the encoder, a row a text; equal texts are one row.
        seed: of the random ones.
        at_random: draws all texts at random, and chooses none.
    """

    def __init__(self, vectors: Floats, seed: int = 0, *, at_random: bool = False) -> None:
        self.vectors = vectors
        self._clusters: dict[int, Indices] = {}
        count = len(vectors)
        self._order = np.random.default_rng(seed).permutation(count)
        #: (N,) whether a text is set aside to be drawn at random.
        self.is_kept = np.full(count, at_random)
        self.is_kept[self._order[: num_random(count)]] = True

    @cached_property
    def _directions(self) -> tuple[Indices, Floats]:
        """The texts to choose typical ones from, at most MOST_CLUSTERED, and their directions."""
        some = np.sort(self._order[~self.is_kept[self._order]][:MOST_CLUSTERED])
        centred = self.vectors[some] - self.vectors[some].mean(axis=0)
        lengths = np.linalg.norm(centred, axis=1, keepdims=True)
        return some, centred / np.maximum(lengths, 1e-12)

    def _clustered(self, count: int) -> Indices:
        """The cluster of each of these texts."""
        some, directions = self._directions
        if count not in self._clusters:
            from sklearn.cluster import KMeans
            from threadpoolctl import threadpool_limits

            means = KMeans(min(count, len(some)), n_init=1, random_state=0)
            # Several threads would add in another order each time.
            with threadpool_limits(1):
                self._clusters[count] = means.fit_predict(directions).astype(np.int64)
        return self._clusters[count]

    def _typical(self, labels: Indices) -> list[int]:
        """Of each cluster without a label the text most like its neighbours, the largest first."""
        some, directions = self._directions
        count = FIRST_CLUSTERS
        while count <= (labels >= 0).sum():
            count *= 2
        clusters = self._clustered(count)
        known = {*clusters[labels[some] >= 0].tolist()}
        numbers, sizes = np.unique(clusters, return_counts=True)
        found = []
        for number in numbers[np.argsort(-sizes, kind="stable")].tolist():
            if number not in known:
                members = np.flatnonzero(clusters == number)
                cosines = np.sort(directions[members] @ directions[members].T, axis=1)
                found.append(int(some[members[cosines[:, -NEIGHBOURS:].mean(axis=1).argmax()]]))
        return found

    def next(
        self,
        labels: Indices,
        drawn: Sequence[Drawn],
        probabilities: Floats | None = None,
        count: int = 1,
        passed: Collection[int] = (),
        elsewhere: Collection[int] = (),
    ) -> list[NextText]:
        """At most ``count`` texts to label next, the first first.

        Args:
            labels: (N,) the class of each text; -1 where it has none yet.
            drawn: how each text came to be asked that was asked here and has a label.
            probabilities: (N, C) by the probe; None before there is one.
            elsewhere: the classes of labelled texts that are not in the pool.
            passed: texts that are not to be asked, such as those that were skipped.
        """
        is_open = labels < 0
        is_open[list(passed)] = False
        random = [at for at in self._order.tolist() if is_open[at] and self.is_kept[at]]
        chosen = [at for at in self._ranked(labels, probabilities, elsewhere) if is_open[at]]
        found: list[NextText] = []
        so_far = list(drawn)
        for _ in range(min(count, len(random) + len(chosen))):
            is_due = so_far.count("random") < num_random(len(so_far) + 1)
            is_random = bool(random) if is_due else not chosen
            so_far.append("random" if is_random else "chosen")
            found.append(NextText((random if is_random else chosen).pop(0), so_far[-1]))
        return found

    def _ranked(
        self, labels: Indices, probabilities: Floats | None, elsewhere: Collection[int] = ()
    ) -> list[int]:
        """The texts that are not set aside, the first to be asked first."""
        rest = self._order[~self.is_kept[self._order]]
        if probabilities is not None:
            rest = rest[np.argsort(margins(probabilities)[rest], kind="stable")]
        known = np.array([*labels[labels >= 0].tolist(), *elsewhere], dtype=np.int64)
        is_early = len(known) < max(FIRST_CLUSTERS, A_CLASS * len(np.unique(known)))
        first = self._typical(labels) if is_early and len(rest) and self.vectors.any() else []
        return list(dict.fromkeys([*first, *rest.tolist()]))


def margins(probabilities: Floats) -> Floats:
    """(N,) how much likelier the likeliest of C classes is than the next; (N, C) are given."""
    top = np.partition(probabilities, -2, axis=1)[:, -2:]
    difference: Floats = top[:, 1] - top[:, 0]
    return difference
