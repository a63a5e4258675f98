"""BertMultipleChoice: any number of choices, numbers and texts as answers, runs."""

from typing import Any

import numpy as np
import pytest

from tidybert.errors import DataError
from tidybert.estimators import BertMultipleChoice

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


def test_learns_and_chooses(quick: Quick) -> None:
    X, y = choices(36)
    fitted = BertMultipleChoice(**{**quick, "num_train_epochs": 8}).fit(X, y)
    assert fitted.score(X, y) > 0.9
    chosen = fitted.predict(X)
    assert chosen.dtype == np.int64
    assert (chosen == y).mean() == fitted.score(X, y)
    probabilities = fitted.predict_proba(X)
    assert [len(each) for each in probabilities] == [len(given) for _, given in X]
    np.testing.assert_allclose([each.sum() for each in probabilities], 1.0)


def test_texts_as_answers_and_rows_of_columns(quick: Quick) -> None:
    rows = [["we saw", "red", "cat", "dog"], ["we", "hen", "blue", "dog"]] * 4
    y = [0, 1] * 4
    estimator = BertMultipleChoice(**quick, max_steps=1)
    expected = np.stack(estimator.fit([(row[0], row[1:]) for row in rows], y).predict_proba(rows))
    table = pytest.importorskip("pandas").DataFrame(rows)
    for X, answers in ((rows, ["red", "blue"] * 4), (np.array(rows), np.array(y)), (table, y)):
        np.testing.assert_array_equal(
            np.stack(estimator.fit(X, answers).predict_proba(X)), expected
        )


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ([], [], "X is empty: expected examples"),
        ("text", [0], "X is 'text', of type str"),
        ([("a", ["b"])], [0], r"X\[0\], y\[0\]: 1 choice; two at least are needed"),
        ([("a", ["b", "c"])], [2], r"the answer is 2; the choices are numbered from 0 to 1"),
        (["ab"], [0], r"X\[0\] is 'ab': expected"),
        ([("a", ["b", "c"])], [0, 1], "X has 1 examples and y has 2"),
    ],
)
def test_what_is_refused(quick: Quick, X: Any, y: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        BertMultipleChoice(**quick).fit(X, y)
