"""Weights of classes, and of the labels of a matrix y."""

import numpy as np
import pytest

from tidybert.errors import DataError, UsageError
from tidybert.estimators.text_estimators import weights_of_classes, weights_of_labels

Y = np.array([[1, 0, 1], [1, 0, 0], [1, 0, 0], [1, 0, 0]], dtype=bool)


def test_balanced_labels_have_both_sides_alike() -> None:
    found = weights_of_labels("balanced", [0, 1, 2], ["0", "1", "2"], Y)
    assert found == {"0": (1.0, 1.0), "1": (1.0, 1.0), "2": (4 / 6, 2.0)}
    assert weights_of_labels(None, [0], ["0"], Y[:, :1]) is None


def test_labels_by_name() -> None:
    found = weights_of_labels({"b": np.float32(3)}, ["a", "b"], ["a", "b"], Y[:, :2])
    assert found == {"a": (1.0, 1.0), "b": (1.0, 3.0)}
    with pytest.raises(DataError, match=r"class_weight of 'b' is -1\.0"):
        weights_of_labels({"b": -1}, ["a", "b"], ["a", "b"], Y[:, :2])
    with pytest.raises(UsageError, match="class_weight is 3; expected None, 'balanced', or"):
        weights_of_labels(3, ["a", "b"], ["a", "b"], Y[:, :2])


def test_classes() -> None:
    classes, column = np.array(["a", "b"]), np.array(["a", "b", "b", "b"])
    assert weights_of_classes("balanced", classes, column).tolist() == [2.0, 4 / 6]
    with pytest.raises(DataError, match=r"class_weight of 'a' is 0\.0: expected finite"):
        weights_of_classes({"a": 0.0}, classes, column)
