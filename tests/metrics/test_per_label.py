"""Quotients of counts, and columns of scores as plain numbers."""

import json

import numpy as np

from tidybert.metrics.per_label import by_label, precision_recall_f1, ratio


def test_a_quotient_by_nothing_is_zero() -> None:
    assert ratio(np.array([1, 0, 3]), np.array([2, 0, 0])).tolist() == [0.5, 0.0, 0.0]


def test_columns_become_plain_numbers_by_label() -> None:
    hits, predicted, support = np.array([1, 0]), np.array([2, 0]), np.array([1, 3])
    precision, _, f1 = precision_recall_f1(hits, predicted, support)

    found = by_label(["no", "yes"], precision=precision, f1=f1, support=support)

    assert found["no"] == {"precision": 0.5, "f1": 2 / 3, "support": 1}
    assert json.dumps(found["yes"]) == '{"precision": 0.0, "f1": 0.0, "support": 3}'
