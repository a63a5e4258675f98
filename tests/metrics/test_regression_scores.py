"""Regression metrics against literal values, SciPy and scikit-learn."""

import json
import math
import operator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tidybert.metrics import regression_metrics


def test_literal_example():
    result = regression_metrics([1, 2, 3, 4], [1, 3, 2, 4])
    assert (result["pearson"], result["spearman"]) == pytest.approx((0.8, 0.8))
    assert result["mse"] == 0.5


NUMBERS = st.one_of(st.integers(0, 5).map(float), st.floats(-1e3, 1e3))


@settings(max_examples=60, deadline=None)
@given(pairs=st.lists(st.tuples(NUMBERS, NUMBERS), min_size=2, max_size=40))
def test_equal_to_scipy(pairs):
    from scipy import stats
    from sklearn.metrics import mean_squared_error

    labels, predictions = np.array(pairs).T
    # Where the values hardly vary, SciPy loses digits and says so.
    assume(min(labels.std(), predictions.std()) > 1e-6)
    result = regression_metrics(labels, predictions)
    pearson = stats.pearsonr(labels, predictions).statistic
    assert result["pearson"] == pytest.approx(pearson, abs=1e-7)
    spearman = stats.spearmanr(labels, predictions).statistic
    assert result["spearman"] == pytest.approx(spearman, abs=1e-12)
    assert result["mse"] == pytest.approx(mean_squared_error(labels, predictions))


@settings(max_examples=60, deadline=None)
@given(
    pairs=st.lists(
        st.tuples(st.floats(-1e150, 1e150), st.floats(-1e150, 1e150)), min_size=1, max_size=8
    )
)
def test_never_nan(pairs):
    labels, predictions = np.array(pairs).T
    result = regression_metrics(labels, predictions)
    json.dumps(result, allow_nan=False)
    assert -1.0 <= result["pearson"] <= 1.0


def test_a_constant_has_no_correlation():
    for labels, predictions in [([1, 2, 3], [0.1] * 3), ([0.1] * 3, [1, 2, 3]), ([1], [2])]:
        result = regression_metrics(labels, predictions)
        assert (result["pearson"], result["spearman"]) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("labels", "predictions", "message"),
    [
        ([], [], "no example"),
        ([1, 2], [1], "one length"),
        ([1, 2], [1, float("nan")], "predictions must be finite; nan"),
        ([float("inf")], [1], "labels must be finite; inf"),
    ],
)
def test_wrong_input(labels, predictions, message):
    with pytest.raises(ValueError, match=message):
        regression_metrics(labels, predictions)


def test_large_values_that_differ_little_lose_nothing():
    random = np.random.default_rng(0)
    labels = 1e6 + 1e-8 * random.normal(size=50)
    predictions = labels + 1e-8 * random.normal(size=50)
    # Exactly, in fractions.
    a, b = ([Fraction(float(each)) for each in values] for values in (labels, predictions))
    a, b = ([each - sum(values) / 50 for each in values] for values in (a, b))
    squared = sum(map(operator.mul, a, b)) ** 2 / (sum(x * x for x in a) * sum(x * x for x in b))
    found = regression_metrics(labels, predictions)["pearson"]
    assert found == pytest.approx(math.sqrt(squared), abs=1e-12)
