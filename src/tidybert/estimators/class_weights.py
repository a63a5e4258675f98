"""``class_weight`` as users give it: a weight for each class, or for each label of a matrix y."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.class_weight import compute_class_weight

from tidybert.errors import DataError, UsageError


def weights_of_classes(
    class_weight: Any, classes: npt.NDArray[Any], column: npt.NDArray[Any]
) -> npt.NDArray[np.float64]:
    """The weight of each class, (C,), as scikit-learn computes it from the labels (n,)."""
    weights = np.asarray(compute_class_weight(class_weight, classes=classes, y=column))
    for label, weight in zip(classes.tolist(), weights.tolist(), strict=True):
        _check(label, weight)
    return weights


def weights_of_labels(
    class_weight: Any, labels: Sequence[Any], names: Sequence[str], y: npt.NDArray[np.bool_]
) -> dict[str, tuple[float, float]] | None:
    """By name, each label's weights in the loss of texts without it and with it.

    "balanced" gives both sides of each label the same weight in all; a mapping gives the texts that
    have a label its weight.  y: (n, L).  Raises UsageError for other values and labels, DataError
    for weights that are not above 0.
    """
    if class_weight is None:
        return None
    if isinstance(class_weight, Mapping):
        unknown = [label for label in class_weight if label not in labels]
        if unknown:
            raise UsageError(
                f"class_weight names the label {unknown[0]!r}, which y does not have; its labels "
                f"are {', '.join(map(repr, labels))}"
            )
        weights = [float(class_weight.get(label, 1.0)) for label in labels]
        for label, weight in zip(labels, weights, strict=True):
            _check(label, weight)
        return {name: (1.0, weight) for name, weight in zip(names, weights, strict=True)}
    if class_weight != "balanced":
        raise UsageError(
            f"class_weight is {class_weight!r:.40}; expected None, 'balanced', or a weight for "
            "labels by name: {label: weight}"
        )
    present = y.sum(0)
    absent = len(y) - present
    pairs = len(y) / (2 * np.stack([np.maximum(absent, 1), np.maximum(present, 1)], axis=1))
    # A label that all texts have, or none, has nothing to balance.
    pairs[(present == 0) | (absent == 0)] = 1.0
    return {name: (float(a), float(b)) for name, (a, b) in zip(names, pairs, strict=True)}


def _check(label: Any, weight: float) -> None:
    if not 0 < weight < np.inf:
        raise DataError(
            f"class_weight of {label!r} is {weight}: expected finite numbers above 0; to leave a "
            "class out, drop its rows from X and y"
        )
