"""Precision, recall and F1 from counts; a quotient by 0 is 0.0, never NaN."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


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
