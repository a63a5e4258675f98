"""What works inside scikit-learn's tools: an entry for each one that docs/scikit-learn.md names."""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.frozen import FrozenEstimator
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    GroupKFold,
    HalvingGridSearchCV,
    RandomizedSearchCV,
    TunedThresholdClassifierCV,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    learning_curve,
    permutation_test_score,
    train_test_split,
    validation_curve,
)
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.semi_supervised import SelfTrainingClassifier

from tidybert.estimators import BertClassifier, BertRegressor, BertVectorizer

Data = Callable[..., tuple[list[str], list[str]]]


@pytest.fixture(scope="module")
def given(quick: dict[str, Any], toy: Data) -> SimpleNamespace:
    """A classifier of one step, texts, their labels, and the same texts as a column (n, 1)."""
    params = {**quick, "max_steps": 1}
    X, y = toy(24)
    return SimpleNamespace(
        params=params,
        bert=BertClassifier(**params),
        vectorizer=BertVectorizer(quick["model"]),
        words=make_pipeline(TfidfVectorizer(), LogisticRegression()),
        X=X,
        y=y,
        column=np.array(X, dtype=object)[:, None],
    )


def lower(texts: Any) -> list[str]:
    return [text.lower() for text in texts]


def frame(given: Any) -> Any:
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame({"number": range(24), "text": given.X})


COLUMN_OF_TEXT = ColumnTransformer([("text", "passthrough", ["text"])])
# By the row's name: the tool, and the X and the y where they are not the texts and their labels.
FITTED: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "Pipeline": lambda g: (make_pipeline(FunctionTransformer(lower), clone(g.bert)),),
    "ColumnTransformer": lambda g: (make_pipeline(COLUMN_OF_TEXT, clone(g.bert)), frame(g)),
    "GridSearchCV": lambda g: (GridSearchCV(g.bert, {"learning_rate": [1e-3, 1e-2]}, cv=2),),
    "RandomizedSearchCV": lambda g: (
        RandomizedSearchCV(g.bert, {"seed": [1, 2, 3]}, n_iter=2, cv=2),
    ),
    "HalvingGridSearchCV": lambda g: (
        HalvingGridSearchCV(g.bert, {"seed": [1, 2]}, cv=2, min_resources=16),
    ),
    "CalibratedClassifierCV": lambda g: (CalibratedClassifierCV(g.bert, cv=2),),
    "FixedThresholdClassifier": lambda g: (FixedThresholdClassifier(g.bert, threshold=0.3),),
    "TunedThresholdClassifierCV": lambda g: (TunedThresholdClassifierCV(g.bert, cv=2),),
    "VotingClassifier": lambda g: (
        VotingClassifier([("bert", g.bert), ("words", g.words)], voting="soft"),
    ),
    "StackingClassifier": lambda g: (
        StackingClassifier([("bert", g.bert), ("words", g.words)], cv=2),
    ),
    "AdaBoostClassifier": lambda g: (
        AdaBoostClassifier(
            clone(g.bert).set_params(max_steps=None, num_train_epochs=15), n_estimators=2
        ),
        np.array(["red", "cat", "blue", "dog"] * 6, dtype=object)[:, None],
        ["colour", "animal"] * 12,
    ),
    "OneVsRestClassifier": lambda g: (OneVsRestClassifier(g.bert), g.X, ["a", "b", "c"] * 8),
    "MultiOutputClassifier": lambda g: (
        MultiOutputClassifier(g.bert), g.X, np.array([[0, 1], [2, 0], [1, 1]] * 8)
    ),
    "TransformedTargetRegressor": lambda g: (
        TransformedTargetRegressor(BertRegressor(**g.params), transformer=StandardScaler()),
        g.X,
        np.arange(24.0),
    ),
    "FeatureUnion": lambda g: (
        make_pipeline(make_union(g.vectorizer, TfidfVectorizer()), LogisticRegression()),
    ),
    "SelectKBest": lambda g: (
        make_pipeline(g.vectorizer, SelectKBest(k=4), LogisticRegression()),
    ),
}  # fmt: skip
# The scores of functions, and the shape that they have.
SCORED: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "cross_val_score": (
        lambda g: [
            cross_val_score(g.bert, g.X, g.y, cv=2, scoring=each)
            for each in ("accuracy", "roc_auc", "neg_log_loss")
        ],
        (3, 2),
    ),
    "cross_validate": (
        lambda g: [
            each.result_.num_steps
            for each in cross_validate(g.bert, g.X, g.y, cv=2, return_estimator=True)["estimator"]
        ],
        (2,),
    ),
    "cross_val_predict": (
        lambda g: cross_val_predict(g.bert, g.X, g.y, cv=2, method="predict_proba"),
        (24, 2),
    ),
    "GroupKFold": (
        lambda g: cross_val_score(g.bert, g.X, g.y, cv=GroupKFold(2), groups=np.arange(24) // 4),
        (2,),
    ),
    "learning_curve": (
        lambda g: learning_curve(
            g.bert, g.X, g.y, cv=2, train_sizes=[0.5, 1.0], shuffle=True, random_state=0
        )[2],
        (2, 2),
    ),
    "validation_curve": (
        lambda g: validation_curve(
            g.bert, g.X, g.y, param_name="seed", param_range=[1, 2], cv=2
        )[1],
        (2, 2),
    ),
    "permutation_test_score": (
        lambda g: permutation_test_score(g.bert, g.X, g.y, cv=2, n_permutations=2)[1],
        (2,),
    ),
}  # fmt: skip
REFUSED = (OneVsOneClassifier, ClassifierChain, SelfTrainingClassifier)
WITH_TESTS = {"train_test_split", "permutation_importance", "FrozenEstimator", "BaggingClassifier"}


@pytest.mark.parametrize("name", FITTED)
def test_a_tool_fits_and_predicts(name: str, given: Any) -> None:
    tool, *data = FITTED[name](given)
    X, y = [*data, given.X, given.y][:2] if len(data) != 1 else (data[0], given.y)
    assert len(tool.fit(X, y).predict(X)) == len(X)


@pytest.mark.parametrize("name", SCORED)
def test_a_function_scores(name: str, given: Any) -> None:
    scores, shape = SCORED[name]
    found = np.array(scores(given))
    assert found.shape == shape
    assert np.isfinite(found).all()


def test_train_test_split(given: Any) -> None:
    X, _, y, _ = train_test_split(given.X, given.y, stratify=given.y, random_state=0)
    assert len(clone(given.bert).fit(X, y).predict(X)) == len(X)


def test_permutation_importance(given: Any) -> None:
    pairs = np.array([(text, "old") for text in given.X], dtype=object)
    fitted = clone(given.bert).fit(pairs, given.y)
    found = permutation_importance(fitted, pairs, given.y, n_repeats=2, random_state=0)
    assert found.importances_mean.shape == (2,)


def test_frozen_estimator(given: Any) -> None:
    frozen = FrozenEstimator(clone(given.bert).fit(given.X, given.y))
    before = frozen.predict_proba(given.X)
    assert len(CalibratedClassifierCV(frozen).fit(given.X, given.y).predict(given.X)) == 24
    np.testing.assert_array_equal(frozen.predict_proba(given.X), before)


def test_bagging_classifier(given: Any) -> None:
    bagging = BaggingClassifier(given.bert, n_estimators=2, random_state=0)
    fitted = bagging.fit(given.column, given.y)
    assert len({each.random_state for each in fitted.estimators_}) == 2
    with pytest.raises(ValueError, match="Expected 2D array"):
        BaggingClassifier(given.bert, n_estimators=2).fit(given.X, given.y)


def test_joblib(given: Any, tmp_path: Path) -> None:
    fitted = clone(given.bert).fit(given.X, given.y)
    joblib.dump(fitted, tmp_path / "bert.joblib")
    again = joblib.load(tmp_path / "bert.joblib")
    np.testing.assert_array_equal(again.predict_proba(given.X), fitted.predict_proba(given.X))


@pytest.mark.parametrize("tool", REFUSED, ids=lambda tool: tool.__name__)
def test_tools_that_want_numbers(given: Any, tool: Any) -> None:
    y = np.array([[0, 1], [1, 0]] * 12) if tool is ClassifierChain else [0, 1, -1] * 8
    with pytest.raises(ValueError, match=r"could not convert string to float|numeric"):
        tool(given.bert).fit(given.column, y)


def test_the_guide_names_each_tool() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "scikit-learn.md").read_text(encoding="utf-8")
    table = guide[guide.index("## Inside scikit-learn's tools") :].split("\n## ")[0]
    first = re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)
    rows = {name for cell in first for name in re.findall(r"`(\w+)`", cell)}
    refused = {each.__name__ for each in REFUSED}
    assert rows == {*FITTED, *SCORED, *WITH_TESTS, "joblib", *refused}
