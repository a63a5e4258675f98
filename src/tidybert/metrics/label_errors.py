"""Labels that may be wrong: the model is sure of another class than the given one.

Confident learning in its simple form (Northcutt et al. 2021, Confident Learning, section 3.1): the
model is sure of a class above the class's mean probability over the examples with its label.  A
suspicion is a reason to look, not a finding: a model that is sure and wrong raises one too.
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
    """The label's class, and the likeliest of the classes that the model is sure of."""
    margin: float
    """How much likelier the suggested class is than the given one."""


def suspected_label_errors(
    probabilities: npt.ArrayLike, labels: npt.ArrayLike
) -> list[SuspectedLabelError]:
    """The examples that look mislabelled, the largest margin first.

    An example is suspected if its class is less likely than on average over the examples of that
    class, and another class is more likely than on average over the examples of that one.

    probabilities: (N, C), from a model that was not trained on these examples, or it has learned
    their mistakes.  labels: (N,) indices of classes.

    Raises ValueError for other shapes or indices out of range.
    """
    p, given = _checked(probabilities, labels)
    rows = np.arange(len(p))
    own = p[rows, given]
    average = _averages(p, given)
    sure = np.where(p > average, p, -1.0)
    sure[rows, given] = -1.0
    suggested = sure.argmax(axis=1)
    best = sure[rows, suggested]
    found = np.flatnonzero((own < average[given]) & (best >= 0))
    order = np.argsort(own[found] - best[found], kind="stable")
    return [
        SuspectedLabelError(int(at), int(given[at]), int(suggested[at]), float(best[at] - own[at]))
        for at in found[order]
    ]


def estimated_label_errors(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> int:
    """How many labels are wrong, by the calibrated confident joint (section 3.1, equations 1 to 3).

    Each example counts as the likeliest of the classes that the model is sure of; the counts of
    each given class are then scaled to all its examples, also those of which the model is not sure.

    Arguments and errors are those of ``suspected_label_errors``.
    """
    p, given = _checked(probabilities, labels)
    sure = np.where(p >= _averages(p, given), p, -1.0)
    best, is_sure = sure.argmax(axis=1), sure.max(axis=1) >= 0
    num_classes = p.shape[1]
    support = np.bincount(given, minlength=num_classes)
    counted = np.bincount(given[is_sure], minlength=num_classes)
    wrong = np.bincount(given[is_sure & (best != given)], minlength=num_classes)
    return round(float((wrong * support / np.maximum(counted, 1)).sum()))


def _checked(
    probabilities: npt.ArrayLike, labels: npt.ArrayLike
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    p, given = np.asarray(probabilities, dtype=np.float64), np.asarray(labels, dtype=np.int64)
    if p.ndim != 2 or given.shape != p.shape[:1] or ((given < 0) | (given >= p.shape[1])).any():
        raise ValueError(
            f"probabilities of shape {p.shape} and labels of shape {given.shape} were given; "
            "(N, C) and (N,) indices of classes are expected"
        )
    return p, given


def _averages(p: npt.NDArray[np.float64], given: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """(C,) the mean probability of each class over the examples with its label."""
    own = p[np.arange(len(p)), given]
    support = np.bincount(given, minlength=p.shape[1])
    # A class without examples has no average, and is never suggested.
    average = np.full(p.shape[1], np.inf)
    np.divide(np.bincount(given, own, p.shape[1]), support, out=average, where=support > 0)
    return average
