"""BertRegressor: numbers in, numbers out, in their own units."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.preprocessing import StandardScaler

from tidybert.estimators import BertRegressor

Quick = dict[str, Any]


@pytest.fixture(scope="module")
def data(toy_examples: Any) -> tuple[list[str], list[float]]:
    examples = toy_examples(96, scores=True)
    return [one.text for one in examples], [float(one.label) for one in examples]


def test_learns_and_predicts(regressor: BertRegressor, toy_examples: Any) -> None:
    examples = toy_examples(40, seed=1, scores=True)
    X, y = [one.text for one in examples], [int(one.label) for one in examples]
    assert regressor.score(X, y) > 0.4
    values = regressor.predict(X)
    assert values.shape == (40,)
    assert values.dtype == np.float64
    assert regressor.n_features_in_ == 1
    assert not hasattr(regressor, "classes_")
    assert not hasattr(regressor, "predict_proba")


def test_the_type_of_y_does_not_matter(quick: Quick, data: tuple[list[str], list[float]]) -> None:
    X, y = data[0][:16], data[1][:16]
    regressor = BertRegressor(**quick).fit(X, y)
    for given in (
        np.array(y, dtype=np.float32),
        np.array(y).astype(int),
        np.array(y, dtype=object),
    ):
        other = clone(regressor).fit(X, given)
        assert torch.equal(other.model_.classifier.weight, regressor.model_.classifier.weight)


def test_scaled_targets(quick: Quick, data: tuple[list[str], list[float]]) -> None:
    X, y = data
    far = np.array(y) * 1000 + 50_000
    scaled = TransformedTargetRegressor(BertRegressor(**quick), transformer=StandardScaler())
    assert np.abs(scaled.fit(X, far).predict(X) - 51_500).max() < 3_000


def test_what_cannot_be_regressed_on(quick: Quick) -> None:
    for y, message in (
        ([3.0, 3.0], "nothing is left to learn"),
        (["good", "bad"], "take BertClassifier"),
        ([1.0, np.inf], "infinity"),
        ([1.0, None], "1 missing value"),
    ):
        with pytest.raises(ValueError, match=message):
            BertRegressor(**quick).fit(["a", "b"], y)
