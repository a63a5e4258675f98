"""Scores of predicted numbers: Pearson's and Spearman's correlation, and mean squared error."""

import numpy as np
import numpy.typing as npt

from tidybert.metrics.classification_scores import Floats, check_one_length


def regression_metrics(labels: npt.ArrayLike, predictions: npt.ArrayLike) -> dict[str, float]:
    """Score predicted numbers, both (B,) and finite: pearson, spearman, mse.

    An undefined correlation, with a constant or for one example, is 0.0 and never NaN: a model that
    always gives the same answer has learned nothing.

    Raises ValueError for no example, other shapes, or values that are not finite.
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
    scaled = values / np.abs(values).max()
    centred = scaled - scaled.mean()
    centred /= np.abs(centred).max()
    unit: Floats = centred / np.linalg.norm(centred)
    return unit


def _ranks(values: Floats) -> Floats:
    """Ranks from 1; equal values share their mean rank."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Floats = (np.cumsum(counts) - (counts - 1) / 2)[places]
    return ranks
