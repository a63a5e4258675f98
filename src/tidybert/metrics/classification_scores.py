"""Scores of predicted classes: accuracy, F1, Matthews, per class, and the confusion matrix.

All scores come from the confusion matrix, in integers until the last division, and equal
scikit-learn's.  An undefined score (for a class that is never predicted) is 0.0, never NaN.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

SMALLEST_PROBABILITY: Final = 1e-15

Floats = npt.NDArray[np.float64]


def classification_metrics(
    labels: npt.ArrayLike,
    predictions: npt.ArrayLike,
    label_names: Sequence[str],
    probabilities: npt.ArrayLike | None = None,
) -> dict[str, Any]:
    """Score predicted classes; all values are plain floats and ints.

    Args:
        labels, predictions: (B,) integers, indices into ``label_names``.
        probabilities: (B, len(label_names)), for log_loss.

    Returns:
        accuracy; macro_f1, the mean F1 of the classes that occur in labels or predictions;
        matthews, 0.0 if either holds only one class; f1, for two classes, of the class with index 1
        (as GLUE scores MRPC and QQP); log_loss, the mean of -ln p(label), with probabilities;
        per_label, precision, recall, f1 and support by name; and confusion_matrix, a row a true
        class and a column a predicted one.

    Raises:
        ValueError: no example, other shapes, or indices out of range.
    """
    matrix = confusion_matrix(labels, predictions, len(label_names))
    total = int(matrix.sum())
    if not total:
        raise ValueError("no example was given; metrics need one at least")
    hits = np.diag(matrix)
    support = matrix.sum(axis=1)
    predicted = matrix.sum(axis=0)
    precision, recall, f1 = precision_recall_f1(hits, predicted, support)
    result: dict[str, Any] = {
        "accuracy": float(hits.sum() / total),
        "macro_f1": float(f1[(support + predicted) > 0].mean()),
        "matthews": _matthews(matrix),
    }
    if len(label_names) == 2:
        result["f1"] = float(f1[1])
    if probabilities is not None:
        result["log_loss"] = _log_loss(np.asarray(labels), np.asarray(probabilities), matrix.shape)
    result["per_label"] = by_label(
        label_names, precision=precision, recall=recall, f1=f1, support=support
    )
    result["confusion_matrix"] = matrix.tolist()
    return result


def confusion_matrix(
    labels: npt.ArrayLike, predictions: npt.ArrayLike, num_labels: int
) -> npt.NDArray[np.int64]:
    """(num_labels, num_labels) counts: the row is the true class, the column the predicted one."""
    true = np.asarray(labels, dtype=np.int64)
    predicted = np.asarray(predictions, dtype=np.int64)
    check_one_length(labels=true, predictions=predicted)
    for name, values in (("labels", true), ("predictions", predicted)):
        if values.size and not 0 <= values.min() <= values.max() < num_labels:
            raise ValueError(
                f"{name} from {values.min()} to {values.max()} were given; {num_labels} classes "
                f"have the indices 0 to {num_labels - 1}"
            )
    counts = np.bincount(true * num_labels + predicted, minlength=num_labels * num_labels)
    return counts.reshape(num_labels, num_labels).astype(np.int64)


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


def _matthews(matrix: npt.NDArray[np.int64]) -> float:
    """Matthews' correlation for any number of classes (Gorodkin 2004)."""
    # From three billion examples on, products of counts overflow 64 bits; Python's integers do not.
    true = [int(count) for count in matrix.sum(axis=1)]
    predicted = [int(count) for count in matrix.sum(axis=0)]
    total = sum(true)
    by_chance = sum(t * p for t, p in zip(true, predicted, strict=True))
    covariance = int(np.trace(matrix)) * total - by_chance
    spread_true = total * total - sum(count * count for count in true)
    spread_predicted = total * total - sum(count * count for count in predicted)
    if spread_true == 0 or spread_predicted == 0:
        return 0.0
    return float(covariance / (spread_true**0.5 * spread_predicted**0.5))


def _log_loss(
    labels: npt.NDArray[Any], probabilities: npt.NDArray[Any], shape: tuple[int, ...]
) -> float:
    if probabilities.shape != (len(labels), shape[1]):
        raise ValueError(
            f"probabilities of shape {probabilities.shape} were given; "
            f"{(len(labels), shape[1])} is expected"
        )
    if not np.isfinite(probabilities).all():
        raise ValueError("probabilities must be finite")
    chosen = probabilities[np.arange(len(labels)), labels].astype(np.float64)
    return float(-np.log(np.clip(chosen, SMALLEST_PROBABILITY, 1.0)).mean())
