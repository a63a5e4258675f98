"""Scores of texts with any number of labels each, and the thresholds that decide on labels.

The numbers equal scikit-learn's for an indicator matrix with ``zero_division=0``: an undefined
score (for a label that is never true or never predicted) is 0.0, never NaN, and counts in a mean.
"""

from collections.abc import Sequence
from math import inf
from operator import mul
from typing import Annotated, Any, Final, NotRequired, TypedDict

import numpy as np
import numpy.typing as npt
from rich.cells import cell_len

from tidybert.metrics.metric import Metric, declared

# Scores of predicted classes: accuracy, F1, Matthews, per class, and the confusion matrix.
#
# All scores come from the confusion matrix, in integers until the last division, and equal
# scikit-learn's.  An undefined score (for a class that is never predicted) is 0.0, never NaN.

SMALLEST_PROBABILITY: Final = 1e-15

Floats = npt.NDArray[np.float64]


@declared
class ClassScores(TypedDict):
    """Scores of predicted classes; f1 and log_loss are there for two classes, and probabilities."""

    accuracy: Annotated[float, Metric("fraction of the examples that are right")]
    macro_f1: Annotated[float, Metric("mean F1 of the classes, however rare")]
    matthews: Annotated[float, Metric("correlation from -1 to 1; 0 is chance, 1 is perfect", -1)]
    f1: NotRequired[Annotated[float, Metric("F1 of the class {positive}")]]
    log_loss: Annotated[float, Metric("mean of -ln(probability of the right class)", most=inf)]
    min_score: NotRequired[Annotated[float, Metric("score from which a label is given, else null")]]
    coverage: NotRequired[Annotated[float, Metric("fraction of the examples that get a label")]]
    answered_accuracy: NotRequired[Annotated[float, Metric("fraction of these that are right")]]
    confusion_matrix: list[list[int]]
    per_label: dict[str, dict[str, float]]


def classification_metrics(
    labels: npt.ArrayLike,
    predictions: npt.ArrayLike,
    label_names: Sequence[str],
    probabilities: npt.ArrayLike | None = None,
) -> dict[str, Any]:
    """The ClassScores of (B,) labels and predictions, and (B, C) probabilities for log_loss.

    macro_f1 is over the classes that occur; matthews is 0.0 if either holds only one class; f1 is
    of the class with index 1 (as GLUE scores MRPC, QQP); a row of confusion_matrix is a true class.
    Raises ValueError for no example, other shapes, or indices out of range.
    """
    scorer = ClassScorer(labels, predictions, len(label_names), probabilities)
    every = np.arange(scorer.num_examples)
    matrix = scorer.counts(every)
    support, predicted = matrix.sum(axis=1), matrix.sum(axis=0)
    precision, recall, f1 = precision_recall_f1(np.diag(matrix), predicted, support)
    per_label = by_label(label_names, precision=precision, recall=recall, f1=f1, support=support)
    return {**scorer(every), "per_label": per_label, "confusion_matrix": matrix.tolist()}


def confusion_matrix(
    labels: npt.ArrayLike, predictions: npt.ArrayLike, num_labels: int
) -> npt.NDArray[np.int64]:
    """(num_labels, num_labels) counts: the row is the true class, the column the predicted one."""
    cells = _cells(labels, predictions, num_labels)
    return _counted(cells, num_labels)


class ClassScorer:
    """Scores any selection of the examples; computes what each adds once, so they are cheap.

    labels, predictions: (B,) from 0 to num_labels - 1.  probabilities: (B, num_labels), for
    log_loss.  Raises ValueError as ``classification_metrics`` does.
    """

    def __init__(
        self,
        labels: npt.ArrayLike,
        predictions: npt.ArrayLike,
        num_labels: int,
        probabilities: npt.ArrayLike | None = None,
    ) -> None:
        self._cells = _cells(labels, predictions, num_labels)
        self._num_labels = num_labels
        self.num_examples = len(self._cells)
        if not self.num_examples:
            raise ValueError("no example was given; metrics need one at least")
        self._losses = None if probabilities is None else self._losses_of(np.asarray(probabilities))

    def __call__(self, indices: npt.NDArray[np.integer[Any]]) -> dict[str, float]:
        """The ClassScores that are numbers, of the examples with these indices, repeated or not."""
        matrix = self.counts(indices)
        hits, support, predicted = np.diag(matrix), matrix.sum(axis=1), matrix.sum(axis=0)
        f1 = ratio(2 * hits, support + predicted)
        scores = {
            "accuracy": float(hits.sum() / len(indices)),
            "macro_f1": float(f1[(support + predicted) > 0].mean()),
            "matthews": _matthews(hits, support, predicted),
        }
        if self._num_labels == 2:
            scores["f1"] = float(f1[1])
        if self._losses is not None:
            scores["log_loss"] = float(self._losses[indices].mean())
        return scores

    def counts(self, indices: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
        """The confusion_matrix of the examples with these indices."""
        return _counted(self._cells[indices], self._num_labels)

    def _losses_of(self, probabilities: npt.NDArray[Any]) -> Floats:
        shape = (self.num_examples, self._num_labels)
        if probabilities.shape != shape:
            raise ValueError(
                f"probabilities of shape {probabilities.shape} were given; {shape} is expected"
            )
        if not np.isfinite(probabilities).all():
            raise ValueError("probabilities must be finite")
        chosen = probabilities[np.arange(self.num_examples), self._cells // self._num_labels]
        losses: Floats = -np.log(np.clip(chosen.astype(np.float64), SMALLEST_PROBABILITY, 1.0))
        return losses


def _cells(
    labels: npt.ArrayLike, predictions: npt.ArrayLike, num_labels: int
) -> npt.NDArray[np.int64]:
    """(B,) places in a confusion matrix that is read by rows."""
    true = np.asarray(labels, dtype=np.int64)
    predicted = np.asarray(predictions, dtype=np.int64)
    check_one_length(labels=true, predictions=predicted)
    for name, values in (("labels", true), ("predictions", predicted)):
        if values.size and not 0 <= values.min() <= values.max() < num_labels:
            raise ValueError(
                f"{name} from {values.min()} to {values.max()} were given; {num_labels} classes "
                f"have the indices 0 to {num_labels - 1}"
            )
    cells: npt.NDArray[np.int64] = true * num_labels + predicted
    return cells


def _counted(cells: npt.NDArray[np.int64], num_labels: int) -> npt.NDArray[np.int64]:
    counts = np.bincount(cells, minlength=num_labels * num_labels)
    return counts.reshape(num_labels, num_labels).astype(np.int64, copy=False)


def check_one_length(**pair: npt.NDArray[Any]) -> None:
    """Raise ValueError unless the two arrays, named by keyword, are (N,) of one N."""
    (name, one), (other_name, other) = pair.items()
    if one.ndim != 1 or one.shape != other.shape:
        raise ValueError(
            f"{name} of shape {one.shape} and {other_name} of shape {other.shape} were given; "
            "two arrays of one length are expected"
        )


def ratio(above: npt.ArrayLike, below: npt.ArrayLike) -> Floats:
    """``above / below`` for two arrays of one shape, 0.0 where ``below`` is 0."""
    divisors = np.asarray(below)
    quotients: Floats = np.zeros(divisors.shape)
    np.divide(above, divisors, out=quotients, where=divisors > 0)
    return quotients


def precision_recall_f1(
    hits: npt.NDArray[Any], predicted: npt.NDArray[Any], support: npt.NDArray[Any]
) -> tuple[Floats, Floats, Floats]:
    """(C,) each, from the numbers of right, predicted and true ones of C labels."""
    return ratio(hits, predicted), ratio(hits, support), ratio(2 * hits, support + predicted)


def by_label(
    label_names: Sequence[str], **columns: npt.NDArray[Any]
) -> dict[str, dict[str, float]]:
    """Columns of (C,) values as plain numbers: label to column to value."""
    return {
        name: {column: values[at].item() for column, values in columns.items()}
        for at, name in enumerate(label_names)
    }


def _matthews(
    hits: npt.NDArray[np.int64], support: npt.NDArray[np.int64], predicted: npt.NDArray[np.int64]
) -> float:
    """Matthews' correlation for any number of classes (Gorodkin 2004)."""
    # From three billion examples on, products of counts overflow 64 bits; Python's integers do not.
    true, given = support.tolist(), predicted.tolist()
    total = sum(true)
    by_chance = sum(map(mul, true, given))
    covariance = sum(hits.tolist()) * total - by_chance
    spread_true = total * total - sum(map(mul, true, true))
    spread_given = total * total - sum(map(mul, given, given))
    if spread_true == 0 or spread_given == 0:
        return 0.0
    return float(covariance / (spread_true**0.5 * spread_given**0.5))


Matrix = npt.NDArray[np.bool_]

DEFAULT_THRESHOLD: Final = 0.5
# With fewer, the best threshold of one sample says little about the next sample.
LEAST_POSITIVES: Final = 10


@declared
class LabelSetScores(TypedDict):
    """Scores of predicted sets of labels."""

    micro_f1: Annotated[float, Metric("F1 of all decisions together")]
    macro_f1: Annotated[float, Metric("mean F1 of the labels, however rare")]
    subset_accuracy: Annotated[float, Metric("fraction of the texts whose labels are all right")]
    hamming_loss: Annotated[float, Metric("fraction of the decisions that are wrong")]
    macro_average_precision: Annotated[
        float, Metric("mean over labels of the precision at every recall")
    ]
    per_label: dict[str, dict[str, float | None]]


def multi_label_metrics(
    labels: npt.ArrayLike,
    predictions: npt.ArrayLike,
    label_names: Sequence[str],
    probabilities: npt.ArrayLike,
) -> dict[str, Any]:
    """The LabelSetScores of labels and predictions (B, C) of 0 and 1, and probabilities (B, C).

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
        given = np.asarray(probabilities, dtype=np.float64)
        if not self.labels.shape == self.predictions.shape == given.shape:
            raise ValueError(
                f"labels of shape {self.labels.shape}, predictions of {self.predictions.shape} "
                f"and probabilities of {given.shape} were given; one shape is expected"
            )
        if not self.labels.size:
            raise ValueError("no example was given; metrics need one at least")
        if not np.isfinite(given).all():
            raise ValueError("probabilities must be finite")
        self._hits = self.labels & self.predictions
        self._num_wrong = (self.labels ^ self.predictions).sum(axis=1)
        self._ranked = [_Ranked(*pair) for pair in zip(self.labels.T, given.T, strict=True)]

    def __call__(self, indices: npt.NDArray[np.integer[Any]]) -> dict[str, float]:
        """The LabelSetScores but per_label, of the examples with these indices, repeated or not."""
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

    A threshold is midway between two of the probabilities (B, C); of several equally good ones, the
    nearest to 0.5.  Labels with fewer than ``least_positives`` of a kind keep 0.5.
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


@declared
class ChoiceScores(TypedDict):
    """Scores of the choices of questions."""

    accuracy: Annotated[float, Metric("fraction of the examples whose right choice is chosen")]
    log_loss: Annotated[float, Metric("mean of -ln(probability of the right choice)", most=inf)]


# Scores of predicted numbers: Pearson's and Spearman's correlation, and mean squared error.


@declared
class NumberScores(TypedDict):
    """Scores of predicted numbers."""

    pearson: Annotated[float, Metric("linear correlation; 0 is chance, 1 is perfect", -1)]
    spearman: Annotated[float, Metric("correlation of the ranks", -1)]
    mse: Annotated[float, Metric("mean squared error, in the scores' units squared", most=inf)]


def regression_metrics(labels: npt.ArrayLike, predictions: npt.ArrayLike) -> dict[str, float]:
    """The NumberScores of labels and predictions, both (B,) and finite.

    An undefined correlation, with a constant or for one example, is 0.0: a model that always gives
    the same answer has learned nothing.
    """
    true = np.asarray(labels, dtype=np.float64)
    predicted = np.asarray(predictions, dtype=np.float64)
    check_one_length(labels=true, predictions=predicted)
    if not true.size:
        raise ValueError("no example was given; metrics need one at least")
    for name, values in (("labels", true), ("predictions", predicted)):
        for bad in values[~np.isfinite(values)]:
            raise ValueError(f"{name} must be finite; {bad} was given")
    return {
        "pearson": _pearson(true, predicted),
        "spearman": _pearson(_ranks(true), _ranks(predicted)),
        "mse": float(np.mean((true - predicted) ** 2)),
    }


def _pearson(a: Floats, b: Floats) -> float:
    # By rounding, the mean of equal values may differ from them, which would look like variation.
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    a, b = _unit(a), _unit(b)
    return float(np.clip(a @ b, -1.0, 1.0))


def _unit(values: Floats) -> Floats:
    """The values about their mean, scaled to length 1 without overflow or underflow."""
    # By a power of two, and about a value among them, large values that differ little lose nothing.
    scaled = np.ldexp(values, -int(np.frexp(np.abs(values).max())[1]))
    centred = scaled - scaled[0]
    centred /= np.abs(centred).max()
    centred -= centred.mean()
    unit: Floats = centred / np.linalg.norm(centred)
    return unit


def _ranks(values: Floats) -> Floats:
    """Ranks from 1; equal values share their mean rank."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Floats = (np.cumsum(counts) - (counts - 1) / 2)[places]
    return ranks


# A confusion matrix as text for a terminal.

LINE_WIDTH: Final = 80
SHOWN_CONFUSIONS: Final = 10
NAME_WIDTH: Final = 16


def confusion_table(matrix: npt.NDArray[np.integer[Any]], label_names: Sequence[str]) -> str:
    """The confusion matrix as text of 80 columns; of many classes only the commonest confusions."""
    names = [_cut(name, NAME_WIDTH) for name in label_names]
    corner = "true \\ predicted"
    first = max(cell_len(text) for text in (corner, *names))
    cells = [[f"{count:,}" for count in row] for row in matrix.tolist()]
    widths = [
        max(cell_len(name), *(len(row[at]) for row in cells)) + 2 for at, name in enumerate(names)
    ]
    if first + sum(widths) > LINE_WIDTH:
        return _top_confusions(matrix, label_names)
    lines = [[corner, *names], *([name, *row] for name, row in zip(names, cells, strict=True))]
    return "\n".join(
        _pad(line[0], first)
        + "".join(_pad(text, -width) for text, width in zip(line[1:], widths, strict=True))
        for line in lines
    )


def _top_confusions(matrix: npt.NDArray[np.integer[Any]], label_names: Sequence[str]) -> str:
    wrong = np.array(matrix)
    np.fill_diagonal(wrong, 0)
    total = int(wrong.sum())
    if not total:
        return f"no confusion among {len(label_names)} classes"
    # A stable sort keeps equal counts in the order of the classes.
    order = np.argsort(-wrong, axis=None, kind="stable")[:SHOWN_CONFUSIONS]
    pairs = [divmod(int(at), len(label_names)) for at in order if wrong.flat[at]]
    counts = [f"{int(wrong[pair]):,}" for pair in pairs]
    count_width = max(len(count) for count in counts)
    room = (LINE_WIDTH - count_width - len("  ") - len(" taken for ")) // 2
    names = [_cut(name, room) for name in label_names]
    first = max(cell_len(names[true]) for true, _ in pairs)
    lines = [
        f"{count:>{count_width}}  {_pad(names[true], first)} taken for {names[predicted]}"
        for count, (true, predicted) in zip(counts, pairs, strict=True)
    ]
    shown = sum(int(wrong[pair]) for pair in pairs)
    rest = [f"and {total - shown:,} more confusions"] if total > shown else []
    return "\n".join([*lines, *rest])


def _cut(text: str, width: int) -> str:
    text = "".join(char if char.isprintable() else " " for char in text)
    if cell_len(text) <= width:
        return text
    while cell_len(text) > width - 1:
        text = text[:-1]
    return text + "…"


def _pad(text: str, width: int) -> str:
    """Fill up with spaces, on the left if ``width`` is negative."""
    space = " " * (abs(width) - cell_len(text))
    return space + text if width < 0 else text + space
