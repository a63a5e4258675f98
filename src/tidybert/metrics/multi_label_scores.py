"""Scores of texts that have any number of labels each, and the thresholds that decide on them.

The numbers are scikit-learn's for a matrix of indicators with ``zero_division=0``: what is
undefined (a label that is never true, or never predicted) is 0.0, never NaN, and counts in a mean.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

DEFAULT_THRESHOLD: Final = 0.5
# With fewer the best threshold of a sample says little of that of the next.
LEAST_POSITIVES: Final = 10


def multi_label_metrics(
    labels: npt.ArrayLike,
    predictions: npt.ArrayLike,
    label_names: Sequence[str],
    probabilities: npt.ArrayLike,
) -> dict[str, Any]:
    """Score predicted sets of labels; all values are plain floats and ints.

    labels, predictions: (B, C) of 0 and 1.  probabilities: (B, C), for the average precision.

    Returns what `MultiLabelScorer` gives of all examples, and per_label, by name: precision,
    recall, f1, average_precision, support (true) and predicted.

    Raises ValueError for no example, other shapes, and probabilities that are not finite.
    """
    scorer = MultiLabelScorer(labels, predictions, probabilities)
    if scorer.labels.shape[1] != len(label_names):
        raise ValueError(
            f"{scorer.labels.shape[1]} columns were given for {len(label_names)} label names"
        )
    ones = np.ones(len(scorer.labels), dtype=np.int64)
    hits, support, predicted = scorer.counts(ones)
    precision, recall = _ratio(hits, predicted), _ratio(hits, support)
    f1 = _ratio(2 * hits, support + predicted)
    average_precision = scorer.average_precision(ones)
    return {
        **scorer(np.arange(len(ones))),
        "per_label": {
            name: {
                "precision": float(precision[at]),
                "recall": float(recall[at]),
                "f1": float(f1[at]),
                "average_precision": float(average_precision[at]),
                "support": int(support[at]),
                "predicted": int(predicted[at]),
            }
            for at, name in enumerate(label_names)
        },
    }


class MultiLabelScorer:
    """Scores any selection of the examples, sorted once, so that many selections are cheap.

    labels, predictions: (B, C) of 0 and 1.  probabilities: (B, C).
    """

    def __init__(
        self, labels: npt.ArrayLike, predictions: npt.ArrayLike, probabilities: npt.ArrayLike
    ) -> None:
        self.labels = _indicators(labels, "labels")
        self.predictions = _indicators(predictions, "predictions")
        scores = np.asarray(probabilities, dtype=np.float64)
        if not self.labels.shape == self.predictions.shape == scores.shape:
            raise ValueError(
                f"labels of shape {self.labels.shape}, predictions of {self.predictions.shape} "
                f"and probabilities of {scores.shape} were given; one shape is expected"
            )
        if not self.labels.size:
            raise ValueError("no example was given; metrics need one at least")
        if not np.isfinite(scores).all():
            raise ValueError("probabilities must be finite")
        self._hits = self.labels & self.predictions
        self._num_wrong = (self.labels ^ self.predictions).sum(axis=1)
        self._ranked = [_Ranked(*pair) for pair in zip(self.labels.T, scores.T, strict=True)]

    def __call__(self, indices: npt.NDArray[np.integer[Any]]) -> dict[str, float]:
        """The scores of the examples of these numbers, one that is repeated as often as it is.

        micro_f1 over all decisions, macro_f1 the mean of the labels' F1, subset_accuracy the share
        of examples whose labels are all right, hamming_loss the share of decisions that are wrong,
        and macro_average_precision, which depends on the order of the probabilities alone.
        """
        times = np.bincount(indices, minlength=len(self.labels))
        hits, support, predicted = self.counts(times)
        total = int(times.sum())
        decisions = int(support.sum() + predicted.sum())
        return {
            "micro_f1": float(2 * hits.sum() / decisions) if decisions else 0.0,
            "macro_f1": float(_ratio(2 * hits, support + predicted).mean()),
            "subset_accuracy": float(times @ (self._num_wrong == 0) / total),
            "hamming_loss": float(times @ self._num_wrong / (total * self.labels.shape[1])),
            "macro_average_precision": float(self.average_precision(times).mean()),
        }

    def counts(
        self, times: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Each label's hits, true ones and predicted ones, (C,); example i counts times[i]."""
        return times @ self._hits, times @ self.labels, times @ self.predictions

    def average_precision(self, times: npt.NDArray[np.int64]) -> Floats:
        """(C,): each label's precision at every recall, averaged; 0.0 without a true one."""
        return np.array([each.average_precision(times) for each in self._ranked])


def f1_thresholds(
    labels: npt.ArrayLike,
    probabilities: npt.ArrayLike,
    least_positives: int = LEAST_POSITIVES,
) -> tuple[Floats, Matrix]:
    """For each label the threshold of the best F1: (C,), and whether it was tuned: (C,).

    labels: (B, C) of 0 and 1.  probabilities: (B, C).  A label is predicted where its probability
    reaches the threshold, which lies midway between two that occur; of several that do equally
    well it is the one nearest to 0.5.  A label with fewer than ``least_positives`` true or as few
    false examples is not tuned and has 0.5.
    """
    truth = _indicators(labels, "labels")
    scores = np.asarray(probabilities, dtype=np.float64)
    positives = truth.sum(axis=0)
    tuned = (positives >= least_positives) & (len(truth) - positives >= least_positives)
    thresholds = np.full(truth.shape[1], DEFAULT_THRESHOLD)
    for at in np.flatnonzero(tuned):
        thresholds[at] = _Ranked(truth[:, at], scores[:, at]).best_threshold()
    return thresholds, tuned


class _Ranked:
    """One label's examples, the most probable first; equal probabilities are one place."""

    def __init__(self, labels: Matrix, scores: Floats) -> None:
        self.order = np.argsort(-scores, kind="stable")
        self.labels = labels[self.order]
        ranked = scores[self.order]
        self.ends = np.flatnonzero(np.append(np.diff(ranked), -1.0))
        self.scores = ranked[self.ends]

    def average_precision(self, times: npt.NDArray[np.int64]) -> float:
        hits, taken = self._cumulated(times[self.order])
        if not hits[-1]:
            return 0.0
        return float(np.diff(hits, prepend=0) @ _ratio(hits, taken) / hits[-1])

    def best_threshold(self) -> float:
        hits, taken = self._cumulated(np.ones(len(self.order), dtype=np.int64))
        f1 = 2 * hits / (taken + hits[-1])
        between = (self.scores + np.append(self.scores[1:], 0.0)) / 2
        # Between neighbours of floating point there is no number, and the lower one is too low.
        between = np.where(between > np.append(self.scores[1:], 0.0), between, self.scores)
        best = np.flatnonzero(f1 == f1.max())
        return float(between[best[np.argmin(np.abs(between[best] - DEFAULT_THRESHOLD))]])

    def _cumulated(
        self, times: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """True ones, and all, down to each place."""
        return np.cumsum(times * self.labels)[self.ends], np.cumsum(times)[self.ends]


def _indicators(values: npt.ArrayLike, name: str) -> Matrix:
    array = np.asarray(values)
    if array.ndim != 2 or not np.isin(array, (0, 1)).all():
        raise ValueError(f"{name} of shape {array.shape}: a matrix (B, C) of 0 and 1 is expected")
    return array.astype(np.bool_)


def _ratio(above: npt.NDArray[np.int64], below: npt.NDArray[np.int64]) -> Floats:
    return np.divide(above, below, out=np.zeros(len(above)), where=below > 0)
