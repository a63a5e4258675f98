"""Active learning: which texts to label next, and the classes of the rest by the labels so far.

Every fifth text that is asked is drawn at random until there are 30, then every tenth.  These are
an honest sample of all texts, so they measure a model.  The others are chosen to teach it: one a
topic first, then those that the probe is least sure of (Settles 2009, Active Learning Literature
Survey, section 3.1).  N texts, H width, C classes.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor
from torch.nn import functional

from tidybert.data.batching import Batch
from tidybert.data.features import Features
from tidybert.tasks.answers import softmax
from tidybert.tasks.task import labels_of
from tidybert.training.linear_probe import LinearProbe, fit_probe

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
        topics: (N,) the number of each text's topic; -1 for none.
    """

    def __init__(self, vectors: Floats, seed: int = 0, topics: Indices | None = None) -> None:
        self.vectors, self._topics = vectors, topics
        count = len(vectors)
        self._order = np.random.default_rng(seed).permutation(count)
        #: (N,) whether a text is set aside to be drawn at random.
        self.is_kept = np.zeros(count, dtype=np.bool_)
        self.is_kept[self._order[: num_random(count)]] = True

    @cached_property
    def typical(self) -> Indices:
        """The texts nearest to the middle of each topic, the largest topic first."""
        topics = self._topics
        if topics is None:
            return np.empty(0, dtype=np.int64)
        chosen = []
        numbers, sizes = np.unique(topics[(topics >= 0) & ~self.is_kept], return_counts=True)
        for number in numbers[np.argsort(-sizes, kind="stable")].tolist():
            members = np.flatnonzero((topics == number) & ~self.is_kept)
            middle = self.vectors[topics == number].mean(axis=0)
            chosen.append(members[np.square(self.vectors[members] - middle).sum(1).argmin()])
        return np.array(chosen, dtype=np.int64)

    def next(
        self,
        labels: Indices,
        drawn: Sequence[Drawn],
        probabilities: Floats | None = None,
        count: int = 1,
        passed: Collection[int] = (),
    ) -> list[NextText]:
        """At most ``count`` texts to label next, the first first.

        Args:
            labels: (N,) the class of each text; -1 where it has none yet.
            drawn: how each text came to be asked that was asked here and has a label.
            probabilities: (N, C) by the probe; None before there is one.
            passed: texts that are not to be asked, such as those that were skipped.
        """
        is_open = labels < 0
        is_open[list(passed)] = False
        random = [at for at in self._order.tolist() if is_open[at] and self.is_kept[at]]
        chosen = [at for at in self._ranked(labels, probabilities) if is_open[at]]
        found: list[NextText] = []
        so_far = list(drawn)
        for _ in range(min(count, len(random) + len(chosen))):
            is_due = so_far.count("random") < num_random(len(so_far) + 1)
            is_random = bool(random) if is_due else not chosen
            so_far.append("random" if is_random else "chosen")
            found.append(NextText((random if is_random else chosen).pop(0), so_far[-1]))
        return found

    def _ranked(self, labels: Indices, probabilities: Floats | None) -> list[int]:
        """The texts that are not set aside: one of each new topic, then the most uncertain."""
        topics = np.full(len(labels), -1) if self._topics is None else self._topics
        known = {*topics[labels >= 0].tolist()}
        first = [at for at in self.typical.tolist() if topics[at] not in known]
        rest = self._order[~self.is_kept[self._order]]
        if probabilities is not None:
            rest = rest[np.argsort(margins(probabilities)[rest], kind="stable")]
        return list(dict.fromkeys([*first, *rest.tolist()]))


def margins(probabilities: Floats) -> Floats:
    """(N,) how much likelier the likeliest of C classes is than the next; (N, C) are given."""
    top = np.partition(probabilities, -2, axis=1)[:, -2:]
    difference: Floats = top[:, 1] - top[:, 0]
    return difference


def fit_classes(vectors: Floats, labels: Indices, num_classes: int) -> LinearProbe:
    """The probe of vectors (n, H) and their classes (n,); it takes below 0.2 s for 300 labels.

    Calls from several threads are fine; equal arguments give equal weights.
    """
    empty = np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.uint8)
    features = [
        Features(*empty, 1, example=number, label=label)
        for number, label in enumerate(labels.tolist())
    ]
    rows = [vectors[number : number + 1] for number in range(len(vectors))]
    return fit_probe(rows, features, num_classes, _summed_loss)


def _summed_loss(outputs: Tensor, batch: Batch) -> Tensor:
    return functional.cross_entropy(outputs, labels_of(batch, outputs), reduction="sum")


def class_probabilities(probe: LinearProbe, vectors: Floats) -> Floats:
    """(N, C) of vectors (N, H)."""
    p = softmax(vectors @ probe.weight.numpy().T + probe.bias.numpy())
    return p.astype(np.float32)
