"""The examples to measure on: given, held out by share, or held out in groups."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tidybert.errors import DataError, UsageError
from tidybert.estimators import BertClassifier, BertRegressor, BertTagger

Data = Callable[..., tuple[list[str], list[str]]]
Quick = dict[str, Any]


def test_given_examples_are_measured_on(quick: Quick, toy: Data) -> None:
    X, y = toy(24)
    X_val, y_val = toy(10, seed=1)
    fitted = BertClassifier(**quick, early_stopping_patience=3).fit(X, y, X_val=X_val, y_val=y_val)
    assert fitted.result_.metrics["accuracy"] == fitted.score(X_val, y_val)
    assert fitted.validation_indices_.tolist() == []
    assert fitted.history_[-1]["step"] == fitted.n_iter_ == fitted.result_.num_steps
    assert {"epoch", "loss", "learning_rate", "accuracy"} <= fitted.history_[-1].keys()
    scores = np.linspace(0, 1, 24)
    regressor = BertRegressor(**quick, max_steps=1).fit(X, scores, X_val=X[:5], y_val=scores[:5])
    assert "pearson" in regressor.result_.metrics
    tagged = [["a"], ["b", "c"]] * 4, [["x"], ["y", "x"]] * 4
    tagger = BertTagger(**quick, max_steps=1).fit(*tagged, X_val=tagged[0], y_val=tagged[1])
    assert tagger.result_.metrics["accuracy"] == tagger.score(*tagged)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"X_val": ["red"]}, "^X_val was given without y_val"),
        ({"y_val": ["colour"]}, "^y_val was given without X_val"),
        ({"X_val": ["a"], "y_val": ["shape"]}, "^in X_val and y_val: y has the label 'shape'"),
        ({"X_val": [("a", "b")], "y_val": ["colour"]}, "^in X_val and y_val: X holds pairs"),
        ({"groups": [1, 2]}, r"^groups has the shape \(2,\): expected \(24,\)"),
    ],
)
def test_what_cannot_be_measured_on(
    quick: Quick, toy: Data, given: dict[str, Any], message: str
) -> None:
    with pytest.raises((DataError, UsageError), match=message):
        BertClassifier(**quick).fit(*toy(24), **given)


def test_two_ways_at_once(quick: Quick, toy: Data) -> None:
    X, y = toy(24)
    with pytest.raises(UsageError, match="and X_val was given: give one of them"):
        BertClassifier(**quick, validation_fraction=0.2).fit(X, y, X_val=X, y_val=y)


def test_groups_without_a_part_to_hold_out(quick: Quick, toy: Data) -> None:
    with pytest.raises(UsageError, match=r"^groups decide .* set validation_fraction"):
        BertClassifier(**quick, validation_fraction=0.0).fit(*toy(24), groups=[1] * 24)


def test_groups_stay_on_one_side(quick: Quick, toy: Data) -> None:
    X, y = toy(48)
    groups = np.repeat(np.arange(12), 4)
    fitted = BertClassifier(**quick, max_steps=1, validation_fraction=0.25)
    fitted.fit(X, y, groups=groups)
    held_out = fitted.validation_indices_
    inside = set(groups[held_out])
    assert 0 < len(inside) < 12
    assert inside.isdisjoint(set(np.delete(groups, held_out)))
    with pytest.raises(DataError, match="24 examples in groups are too few to hold any out"):
        fitted.fit(X[:24], y[:24], groups=[1] * 24)
