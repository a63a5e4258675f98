"""BertRegressor: numbers in, numbers out, in their own units."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.preprocessing import StandardScaler

from tidybert.errors import DataError
from tidybert.estimators import BertRegressor
from tidybert.inference import Predictor

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


def test_a_weight_of_zero_leaves_an_example_out(
    quick: Quick, data: tuple[list[str], list[float]]
) -> None:
    X, y = data[0][:32], data[1][:32]
    weighted = BertRegressor(**quick).fit(X, y, sample_weight=[0.0] * 8 + [2.0] * 24)
    left_out = BertRegressor(**quick).fit(X[8:], y[8:])
    np.testing.assert_array_equal(weighted.predict(X), left_out.predict(X))


def test_the_part_held_out(quick: Quick, data: tuple[list[str], list[float]]) -> None:
    fitted = BertRegressor(**quick, validation_fraction=0.25).fit(*data)
    assert set(fitted.result_.metrics) >= {"pearson", "spearman"}
    assert fitted.result_.num_examples == 2 * 72


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
        ([1.0, None], "missing values"),
    ):
        with pytest.raises(ValueError, match=message):
            BertRegressor(**quick).fit(["a", "b"], y)
    with pytest.raises(DataError, match="BertRegressor requires y to be passed"):
        BertRegressor(**quick).fit(["a", "b"], None)


def test_save_and_load(
    regressor: BertRegressor, data: tuple[list[str], list[float]], tmp_path: Path
) -> None:
    X, _ = data
    regressor.save(tmp_path)
    loaded = BertRegressor.load(tmp_path)
    np.testing.assert_array_equal(loaded.predict(X), regressor.predict(X))
    answers = Predictor(tmp_path).predict(X[:4])
    assert [answer["value"] for answer in answers] == regressor.predict(X[:4]).tolist()
