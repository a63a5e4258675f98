"""BertMultipleChoice: any number of choices, numbers and texts as answers, runs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import cross_val_predict, cross_val_score

from tidybert.errors import DataError
from tidybert.estimators import BertMultipleChoice
from tidybert.inference import Predictor

Quick = dict[str, Any]
COLOURS, ANIMALS = ("red", "blue", "green"), ("cat", "dog", "hen")


def choices(count: int) -> tuple[list[tuple[str, list[str]]], list[int]]:
    """The colour, whatever its place, is right."""
    X, y = [], []
    for number in range(count):
        given = [*ANIMALS[: 1 + number % 3]]
        place = number % (len(given) + 1)
        given.insert(place, COLOURS[number // 2 % 3])
        X.append((f"we saw a {number}", given))
        y.append(place)
    return X, y


def test_learns_chooses_and_is_saved(quick: Quick, tmp_path: Path) -> None:
    X, y = choices(36)
    fitted = BertMultipleChoice(**{**quick, "num_train_epochs": 8}).fit(X, y)
    assert fitted.score(X, y) > 0.9
    chosen = fitted.predict(X)
    assert chosen.dtype == np.int64
    assert (chosen == y).mean() == fitted.score(X, y)
    probabilities = fitted.predict_proba(X)
    assert [len(each) for each in probabilities] == [len(given) for _, given in X]
    np.testing.assert_allclose([each.sum() for each in probabilities], 1.0)
    fitted.save(tmp_path / "run")
    assert BertMultipleChoice.load(tmp_path / "run").predict(X).tolist() == chosen.tolist()
    answers = Predictor(tmp_path / "run").predict(*zip(*X, strict=True))
    assert [each["choice"] for each in answers] == chosen.tolist()


def test_texts_as_answers_and_rows_of_columns(quick: Quick) -> None:
    rows = [["we saw", "red", "cat", "dog"], ["we", "hen", "blue", "dog"]] * 4
    y = [0, 1] * 4
    estimator = BertMultipleChoice(**quick, max_steps=1)
    expected = np.stack(estimator.fit([(row[0], row[1:]) for row in rows], y).predict_proba(rows))
    for X, answers in ((rows, ["red", "blue"] * 4), (np.array(rows), np.array(y))):
        np.testing.assert_array_equal(
            np.stack(estimator.fit(X, answers).predict_proba(X)), expected
        )


def test_inside_scikit_learn(quick: Quick) -> None:
    X, y = choices(12)
    estimator = BertMultipleChoice(**quick, max_steps=1)
    assert np.isfinite(cross_val_score(estimator, X, y, cv=2)).all()
    assert cross_val_predict(estimator, X, y, cv=2).shape == (12,)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ([], [], "X is empty: expected examples"),
        ("text", [0], "X is 'text', of type str"),
        ([("a", ["b"])], [0], r"X\[0\], y\[0\]: 1 choice; two at least are needed"),
        ([("a", ["b", "c"])], [2], r"the answer is 2; the choices are numbered from 0 to 1"),
        (["ab"], [0], r"X\[0\] is 'ab': expected"),
        ([("a", ["b", "c"])], [0, 1], "X has 1 examples and y has 2"),
        ([("a", ["b", "c"])], None, "requires y to be passed"),
    ],
)
def test_what_is_refused(quick: Quick, X: Any, y: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        BertMultipleChoice(**quick).fit(X, y)
