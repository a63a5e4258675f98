"""BertQuestionAnswerer: answers in every form, no answers, runs, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from tidybert.errors import DataError, DataWarning
from tidybert.estimators import BertQuestionAnswerer
from tidybert.estimators.question_answerer import _answered

Quick = dict[str, Any]
COLOURS, ANIMALS = ("red", "blue", "green"), ("cat", "dog", "hen")


@pytest.fixture(scope="module")
def brief(quick: Quick) -> Quick:
    """Parameters that fit the few positions of the tiny model."""
    return {**quick, "max_query_length": 8}


def questions(count: int) -> tuple[list[tuple[str, str]], list[str]]:
    """Which colour a sentence has."""
    X, y = [], []
    for number in range(count):
        colour, animal = COLOURS[number % 3], ANIMALS[number // 3 % 3]
        X.append(("the colour", f"we saw {number} a {colour} {animal}"))
        y.append(colour)
    return X, y


@pytest.fixture(scope="module")
def answerer(brief: Quick) -> BertQuestionAnswerer:
    thorough = {**brief, "num_train_epochs": 12}
    return BertQuestionAnswerer(**thorough).fit(*questions(36))


def test_learns_and_answers(answerer: BertQuestionAnswerer, tmp_path: Path) -> None:
    X, y = questions(12)
    assert answerer.score(X, y) > 0.9
    assert answerer.predict(X).tolist() == [each["answer"] for each in answerer.predict_answers(X)]
    first = answerer.predict_answers(X)[0]
    assert X[0][1][first["start"] : first["end"]] == first["answer"]
    answerer.save(tmp_path / "run")
    loaded = BertQuestionAnswerer.load(tmp_path / "run")
    assert loaded.predict_answers(X) == answerer.predict_answers(X)


def test_every_form_of_an_answer(brief: Quick) -> None:
    X, y = questions(12)
    starts = [pair[1].index(text) for pair, text in zip(X, y, strict=True)]
    forms: list[list[Any]] = [
        list(zip(y, starts, strict=True)),
        [[text] for text in y],
        [{"text": [text], "answer_start": [at]} for text, at in zip(y, starts, strict=True)],
        [{"answers": [{"text": text}]} for text in y],
    ]
    estimator = BertQuestionAnswerer(**brief, max_steps=1)
    expected = clone(estimator).fit(X, y).predict_answers(X)
    for form in forms:
        assert clone(estimator).fit(np.array(X, dtype=object), form).predict_answers(X) == expected


def test_questions_without_an_answer(brief: Quick) -> None:
    X, y = questions(24)
    none = ["" if at % 3 else text for at, text in enumerate(y)]
    fitted = BertQuestionAnswerer(**brief, validation_fraction=0.25).fit(X, none)
    assert fitted.task_.no_answers
    assert "best_f1" in fitted.result_.metrics
    assert all("null_score" in each for each in fitted.predict_answers(X))


def test_inside_scikit_learn(brief: Quick) -> None:
    X, y = questions(12)
    estimator = BertQuestionAnswerer(**brief, max_steps=1)
    search = GridSearchCV(estimator, {"max_answer_length": [1, 5]}, cv=2).fit(X, y)
    assert search.best_estimator_.task_.max_answer_length in (1, 5)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (["a"], ["a"], r"X holds single texts: expected pairs \(question, context\)"),
        ([("a", "we saw")], ["cat"], r"y\[0\]: the answer 'cat' is not in the context; expected"),
        ([("a", "we saw")], [None], r"y\[0\]: the answer is missing"),
        ([("a", "we saw")], [3], r"y\[0\]: the answer is 3, of type int"),
        ([("a", "we saw")], [], "X has 1 questions and y has 0 answers"),
    ],
)
def test_what_is_refused(brief: Quick, X: Any, y: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        BertQuestionAnswerer(**brief).fit(X, y)


def test_a_misplaced_answer_is_moved_with_a_warning() -> None:
    with pytest.warns(DataWarning, match=r"y: 1 span not at the given place, .* 1 by 3 \(char"):
        (example,) = _answered([("a", "we saw we")], [("saw", 0)])

    assert example.answers == (("saw", 3),)
