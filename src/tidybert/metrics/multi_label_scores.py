"""Scores of texts with any number of labels each, and the thresholds that decide on labels.

The numbers equal scikit-learn's for an indicator matrix with ``zero_division=0``: an undefined
score (for a label that is never true or never predicted) is 0.0, never NaN, and counts in a mean.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tidybert.metrics.classification_scores import Floats, by_label, precision_recall_f1, ratio

Matrix = npt.NDArray[np.bool_]

DEFAULT_THRESHOLD: Final = 0.5
# With fewer, the best threshold of one sample says little about the next sample.
LEAST_POSITIVES: Final = 10


def multi_label_metrics(
    labels: npt.ArrayLike,
    predictions: npt.ArrayLike,
    label_names: Sequence[str],
    probabilities: npt.ArrayLike,
) -> dict[str, Any]:
    """Score predicted sets of labels; all values are plain floats and ints.

    labels, predictions: (B, C) of 0 and 1.  probabilities: (B, C), for the average precision.

    Returns the scores of `MultiLabelScorer` for all examples, and per_label, by name: precision,
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
    precision, recall, f1 = precision_recall_f1(hits, predicted, support)
    per_label = by_label(
        label_names,
        precision=precision,
        recall=recall,
        f1=f1,
        average_precision=scorer.average_precision(ones),
        support=support,
        predicted=predicted,
    )
    return {**scorer(np.arange(len(ones))), "per_label": per_label}


class MultiLabelScorer:
    """Scores any selection of the examples; sorts them once, so that many selections are cheap.

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
        """The scores of the examples with these indices, which may repeat.

        micro_f1 over all decisions; macro_f1, the mean of the labels' F1; subset_accuracy, the
        share of examples whose labels are all right; hamming_loss, the share of wrong decisions;
        and macro_average_precision, which depends only on the order of the probabilities.
        """
        times = np.bincount(indices, minlength=len(self.labels))
        hits, support, predicted = self.counts(times)
        total = int(times.sum())
        decisions = int(support.sum() + predicted.sum())
        return {
            "micro_f1": float(2 * hits.sum() / decisions) if decisions else 0.0,
            "macro_f1": float(ratio(2 * hits, support + predicted).mean()),
            "subset_accuracy": float(times @ (self._num_wrong == 0) / total),
            "hamming_loss": float(times @ self._num_wrong / (total * self.labels.shape[1])),
            "macro_average_precision": float(self.average_precision(times).mean()),
        }

    def counts(
        self, times: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """(C,) each: a label's hits, true and predicted ones; example i counts times[i]."""
        return times @ self._hits, times @ self.labels, times @ self.predictions

    def average_precision(self, times: npt.NDArray[np.int64]) -> Floats:
        """(C,): each label's mean precision over all recalls; 0.0 without a true example."""
        return np.array([each.average_precision(times) for each in self._ranked])


def f1_thresholds(
    labels: npt.ArrayLike, probabilities: npt.ArrayLike, least_positives: int = LEAST_POSITIVES
) -> tuple[Floats, Matrix]:
    """For each label the threshold with the best F1: (C,), and whether it was tuned: (C,).

    labels: (B, C) of 0 and 1.  probabilities: (B, C).  A label is predicted if its probability
    reaches the threshold.  A threshold is midway between two probabilities that occur; of several
    equally good ones, the nearest to 0.5.  A label with fewer than ``least_positives`` true or
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
        return float(np.diff(hits, prepend=0) @ ratio(hits, taken) / hits[-1])

    def best_threshold(self) -> float:
        hits, taken = self._cumulated(np.ones(len(self.order), dtype=np.int64))
        f1 = 2 * hits / (taken + hits[-1])
        between = (self.scores + np.append(self.scores[1:], 0.0)) / 2
        # No number is between two floating-point neighbours, and the lower one is too low.
        between = np.where(between > np.append(self.scores[1:], 0.0), between, self.scores)
        best = np.flatnonzero(f1 == f1.max())
        return float(between[best[np.argmin(np.abs(between[best] - DEFAULT_THRESHOLD))]])

    def _cumulated(
        self, times: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The numbers of true examples, and of all, down to each place."""
        return np.cumsum(times * self.labels)[self.ends], np.cumsum(times)[self.ends]


def _indicators(values: npt.ArrayLike, name: str) -> Matrix:
    array = np.asarray(values)
    if array.ndim != 2 or not np.isin(array, (0, 1)).all():
        raise ValueError(f"{name} of shape {array.shape}: a matrix (B, C) of 0 and 1 is expected")
    return array.astype(np.bool_)
