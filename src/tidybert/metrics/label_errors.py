"""Labels that may be wrong: those that a model finds the least likely.

Confident learning (Northcutt et al. 2021, Confident Learning) estimates how many labels are wrong.
As many are suspected, ranked by self-confidence, the probability of the given class (section 4).
A suspicion is a reason to look, not a finding: a model that is sure and wrong raises one too.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class SuspectedLabelError:
    """An example whose label the probabilities contradict."""

    example: int
    """Its index."""
    given: int
    suggested: int
    """The label's class, and the likeliest class."""


def suspected_label_errors(
    probabilities: npt.ArrayLike, labels: npt.ArrayLike, *, judged: npt.ArrayLike = True
) -> list[SuspectedLabelError]:
    """The examples that look mislabelled, the least likely label first.

    probabilities: (N, C), from a model that was not trained on these examples, or it has learned
    their mistakes.  labels: (N,).  judged: (C,) whether each class is, all unless given.
    """
    p, given = np.asarray(probabilities, dtype=np.float64), np.asarray(labels, dtype=np.int64)
    own, best = p[np.arange(len(p)), given], p.argmax(axis=1)
    suspicious = (best != given) & np.broadcast_to(judged, p.shape[1])[given]
    order = [at for at in np.argsort(own, kind="stable").tolist() if suspicious[at]]
    return [
        SuspectedLabelError(at, int(given[at]), int(best[at]))
        for at in order[: estimated_label_errors(p, given)]
    ]


def estimated_label_errors(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> int:
    """How many labels are wrong, by the calibrated confident joint (section 3.1, equations 1 to 3).

    The model is sure of a class at or above the class's mean probability over its examples.
    Each example counts as the likeliest of the classes that the model is sure of; the counts of
    each given class are then scaled to all its examples, also those of which the model is not sure.
    """
    p, given = np.asarray(probabilities, dtype=np.float64), np.asarray(labels, dtype=np.int64)
    num_classes = p.shape[1]
    support = np.bincount(given, minlength=num_classes)
    # A class without examples has no average, and is never suggested.
    average = np.full(num_classes, np.inf)
    own = np.bincount(given, p[np.arange(len(p)), given], num_classes)
    np.divide(own, support, out=average, where=support > 0)
    sure = np.where(p >= average, p, -1.0)
    best, is_sure = sure.argmax(axis=1), sure.max(axis=1) >= 0
    counted = np.bincount(given[is_sure], minlength=num_classes)
    wrong = np.bincount(given[is_sure & (best != given)], minlength=num_classes)
    return round(float((wrong * support / np.maximum(counted, 1)).sum()))
