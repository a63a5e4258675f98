"""Which texts of a batch are candidates of which anchor, and which of them are no negatives.

An anchor's own positive may be in the batch again, as may another text that belongs to it, or the
anchor itself.  None of them is a negative.  B examples, C candidates.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidybert.data.features import Features
from tidybert.tasks.vectors.vector_examples import VectorExample


@dataclass(frozen=True)
class PairLabel:
    """The texts of an example by number; equal texts have one.

    Args:
        texts: of the anchor, its positive and its negatives.
        related: ascending, of the anchor and of all texts that any example has as its positive.
    """

    texts: tuple[int, ...]
    related: tuple[int, ...]


class TextNumbers:
    """Numbers of the texts of examples, and what belongs to each anchor."""

    def __init__(self, examples: Sequence[VectorExample]) -> None:
        texts = dict.fromkeys(text for one in examples for text in one.texts)
        self._number_of = {text: number for number, text in enumerate(texts)}
        self._related: dict[str, set[int]] = {}
        for one in examples:
            anchor, positive = one.texts[:2]
            known = self._related.setdefault(anchor, {self._number_of[anchor]})
            known.add(self._number_of[positive])

    def label(self, example: VectorExample) -> PairLabel:
        """What the loss needs to know of an example."""
        texts = tuple(self._number_of[text] for text in example.texts)
        return PairLabel(texts, tuple(sorted(self._related[example.texts[0]])))


def candidate_rows(
    features: Sequence[Features],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Rows of the batch's vectors: (B,) the anchors; (C,) all positives, then all negatives."""
    counts = np.array([len(one.lengths) for one in features])
    firsts = np.cumsum(counts) - counts
    negatives = [
        np.arange(first + 2, first + count) for first, count in zip(firsts, counts, strict=True)
    ]
    return firsts, np.concatenate([firsts + 1, *negatives])


def ignored_candidates(labels: Sequence[PairLabel]) -> npt.NDArray[np.bool_]:
    """(B, C) whether a candidate is no negative of an anchor; its own positive is not ignored."""
    candidates = [one.texts[1] for one in labels]
    candidates += [text for one in labels for text in one.texts[2:]]
    places: dict[int, list[int]] = {}
    for place, text in enumerate(candidates):
        places.setdefault(text, []).append(place)
    ignored = np.zeros((len(labels), len(candidates)), dtype=np.bool_)
    for anchor, one in enumerate(labels):
        for text in one.related:
            ignored[anchor, places.get(text, [])] = True
    own = np.arange(len(labels))
    ignored[own, own] = False
    return ignored
