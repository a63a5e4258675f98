"""Scores of predicted classes: accuracy, F1, Matthews, per class, and the confusion matrix.

Everything comes from the confusion matrix, in integers until the last division, so the numbers are
scikit-learn's; what is undefined there (a class never predicted) is 0.0 here too, never NaN.
"""

import unicodedata
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

LINE_WIDTH: Final = 80
SHOWN_CONFUSIONS: Final = 10
NAME_WIDTH: Final = 16
SMALLEST_PROBABILITY: Final = 1e-15


def classification_metrics(
    labels: npt.ArrayLike,
    predictions: npt.ArrayLike,
    label_names: Sequence[str],
    probabilities: npt.ArrayLike | None = None,
) -> dict[str, Any]:
    """Score predicted classes; all values are plain floats and ints.

    labels, predictions: (B,) integers, indices into ``label_names``.
    probabilities: (B, len(label_names)), for log_loss.

    Returns accuracy; macro_f1, the mean F1 of the classes that occur in labels or predictions;
    matthews, 0.0 where either holds one class only; f1, for two classes, that of the class of index
    1 (as GLUE scores MRPC and QQP); log_loss, the mean of -ln p(label), with probabilities;
    per_label, by name, precision, recall, f1 (0.0 where undefined) and support; and
    confusion_matrix, a row a true class and a column a predicted one.

    Raises ValueError for no example, other shapes, or indices out of range.
    """
    matrix = confusion_matrix(labels, predictions, len(label_names))
    total = int(matrix.sum())
    if not total:
        raise ValueError("no example was given; metrics need one at least")
    hits = np.diag(matrix)
    support = matrix.sum(axis=1)
    predicted = matrix.sum(axis=0)
    precision = _ratio(hits, predicted)
    recall = _ratio(hits, support)
    f1 = _ratio(2 * hits, support + predicted)
    result: dict[str, Any] = {
        "accuracy": float(hits.sum() / total),
        "macro_f1": float(f1[(support + predicted) > 0].mean()),
        "matthews": _matthews(matrix),
    }
    if len(label_names) == 2:
        result["f1"] = float(f1[1])
    if probabilities is not None:
        result["log_loss"] = _log_loss(np.asarray(labels), np.asarray(probabilities), matrix.shape)
    result["per_label"] = {
        name: {
            "precision": float(precision[at]),
            "recall": float(recall[at]),
            "f1": float(f1[at]),
            "support": int(support[at]),
        }
        for at, name in enumerate(label_names)
    }
    result["confusion_matrix"] = matrix.tolist()
    return result


def confusion_matrix(
    labels: npt.ArrayLike, predictions: npt.ArrayLike, num_labels: int
) -> npt.NDArray[np.int64]:
    """(num_labels, num_labels) counts: the row is the true class, the column the predicted one."""
    true = np.asarray(labels, dtype=np.int64)
    predicted = np.asarray(predictions, dtype=np.int64)
    if true.ndim != 1 or true.shape != predicted.shape:
        raise ValueError(
            f"labels of shape {true.shape} and predictions of shape {predicted.shape} were given; "
            "two arrays of one length are expected"
        )
    for name, values in (("labels", true), ("predictions", predicted)):
        if values.size and not 0 <= values.min() <= values.max() < num_labels:
            raise ValueError(
                f"{name} from {values.min()} to {values.max()} were given; {num_labels} classes "
                f"have the indices 0 to {num_labels - 1}"
            )
    counts = np.bincount(true * num_labels + predicted, minlength=num_labels * num_labels)
    return counts.reshape(num_labels, num_labels).astype(np.int64)


def confusion_table(matrix: npt.NDArray[np.integer[Any]], label_names: Sequence[str]) -> str:
    """The confusion matrix as plain text, at most 80 columns wide.

    Where the classes are too many for a table, the most frequent confusions instead.
    """
    names = [_cut(name, NAME_WIDTH) for name in label_names]
    corner = "true \\ predicted"
    first = max(_width(text) for text in (corner, *names))
    cells = [[f"{count:,}" for count in row] for row in matrix.tolist()]
    widths = [
        max(_width(name), *(len(row[at]) for row in cells)) + 2 for at, name in enumerate(names)
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
    first = max(_width(names[true]) for true, _ in pairs)
    lines = [
        f"{count:>{count_width}}  {_pad(names[true], first)} taken for {names[predicted]}"
        for count, (true, predicted) in zip(counts, pairs, strict=True)
    ]
    shown = sum(int(wrong[pair]) for pair in pairs)
    rest = [f"and {total - shown:,} more confusions"] if total > shown else []
    return "\n".join([*lines, *rest])


def _ratio(above: npt.NDArray[np.int64], below: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    return np.divide(above, below, out=np.zeros(len(above)), where=below > 0)


def _matthews(matrix: npt.NDArray[np.int64]) -> float:
    """The correlation of Matthews for any number of classes (Gorodkin 2004)."""
    # Products of counts overflow 64 bits from three billion examples on; Python's integers do not.
    true = [int(count) for count in matrix.sum(axis=1)]
    predicted = [int(count) for count in matrix.sum(axis=0)]
    total = sum(true)
    covariance = int(np.trace(matrix)) * total - sum(
        t * p for t, p in zip(true, predicted, strict=True)
    )
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


def _width(text: str) -> int:
    """Terminal columns: East Asian wide characters take two, combining marks none."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def _cut(text: str, width: int) -> str:
    text = "".join(char if char.isprintable() else " " for char in text)
    if _width(text) <= width:
        return text
    while _width(text) > width - 1:
        text = text[:-1]
    return text + "…"


def _pad(text: str, width: int) -> str:
    """Fill up with spaces, on the left where ``width`` is negative."""
    space = " " * (abs(width) - _width(text))
    return space + text if width < 0 else text + space
