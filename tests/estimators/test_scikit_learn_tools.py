"""What works inside which of scikit-learn's tools: a test for each row of docs/scikit-learn.md."""

import re
from collections.abc import Callable
from pathlib import Path
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


class Given:
    """A classifier of one step, texts, their labels, and the same texts as a column (n, 1)."""

    def __init__(self, quick: dict[str, Any], toy: Data) -> None:
        self.params = {**quick, "max_steps": 1}
        self.bert = BertClassifier(**self.params)
        self.X, self.y = toy(24)
        self.column = np.array(self.X, dtype=object)[:, None]

    def fits(self, tool: Any, X: Any = None, y: Any = None) -> Any:
        """The tool, fitted, whose predictions are as many as its examples."""
        X = self.X if X is None else X
        fitted = tool.fit(X, self.y if y is None else y)
        assert len(fitted.predict(X)) == len(X)
        return fitted


@pytest.fixture(scope="module")
def given(quick: dict[str, Any], toy: Data) -> Given:
    return Given(quick, toy)


def upper(texts: Any) -> list[str]:
    return [text.lower() for text in texts]


def test_pipeline(given: Given) -> None:
    given.fits(make_pipeline(FunctionTransformer(upper), clone(given.bert)))


def test_column_transformer(given: Given) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"number": range(24), "text": given.X})
    chosen = ColumnTransformer([("text", "passthrough", ["text"])])
    given.fits(make_pipeline(chosen, clone(given.bert)), frame)


def test_grid_search_cv(given: Given) -> None:
    given.fits(GridSearchCV(given.bert, {"learning_rate": [1e-3, 1e-2]}, cv=2))


def test_randomized_search_cv(given: Given) -> None:
    given.fits(RandomizedSearchCV(given.bert, {"seed": [1, 2, 3]}, n_iter=2, cv=2))


def test_halving_grid_search_cv(given: Given) -> None:
    given.fits(HalvingGridSearchCV(given.bert, {"seed": [1, 2]}, cv=2, min_resources=16))


def test_cross_val_score(given: Given) -> None:
    for scoring in ("accuracy", "roc_auc", "neg_log_loss"):
        assert np.isfinite(
            cross_val_score(given.bert, given.X, given.y, cv=2, scoring=scoring)
        ).all()


def test_cross_validate(given: Given) -> None:
    found = cross_validate(given.bert, given.X, given.y, cv=2, return_estimator=True)
    assert all(each.result_.num_steps == 1 for each in found["estimator"])


def test_cross_val_predict(given: Given) -> None:
    found = cross_val_predict(given.bert, given.X, given.y, cv=2, method="predict_proba")
    assert found.shape == (24, 2)


def test_group_k_fold(given: Given) -> None:
    groups = np.arange(24) // 4
    scores = cross_val_score(given.bert, given.X, given.y, cv=GroupKFold(2), groups=groups)
    assert np.isfinite(scores).all()


def test_train_test_split(given: Given) -> None:
    X, _, y, _ = train_test_split(given.X, given.y, stratify=given.y, random_state=0)
    given.fits(clone(given.bert), X, y)


def test_learning_curve(given: Given) -> None:
    _, _, scores = learning_curve(
        given.bert, given.X, given.y, cv=2, train_sizes=[0.5, 1.0], shuffle=True, random_state=0
    )
    assert scores.shape == (2, 2)


def test_validation_curve(given: Given) -> None:
    _, scores = validation_curve(
        given.bert, given.X, given.y, param_name="seed", param_range=[1, 2], cv=2
    )
    assert scores.shape == (2, 2)


def test_permutation_test_score(given: Given) -> None:
    _, scores, _ = permutation_test_score(given.bert, given.X, given.y, cv=2, n_permutations=2)
    assert scores.shape == (2,)


def test_permutation_importance(given: Given) -> None:
    pairs = np.array([(text, "old") for text in given.X], dtype=object)
    fitted = clone(given.bert).fit(pairs, given.y)
    found = permutation_importance(fitted, pairs, given.y, n_repeats=2, random_state=0)
    assert found.importances_mean.shape == (2,)


def test_calibrated_classifier_cv(given: Given) -> None:
    given.fits(CalibratedClassifierCV(given.bert, cv=2))


def test_frozen_estimator(given: Given) -> None:
    frozen = FrozenEstimator(clone(given.bert).fit(given.X, given.y))
    before = frozen.predict_proba(given.X)
    given.fits(CalibratedClassifierCV(frozen))
    np.testing.assert_array_equal(frozen.predict_proba(given.X), before)


def test_fixed_threshold_classifier(given: Given) -> None:
    given.fits(FixedThresholdClassifier(clone(given.bert), threshold=0.3))


def test_tuned_threshold_classifier_cv(given: Given) -> None:
    given.fits(TunedThresholdClassifierCV(given.bert, cv=2))


def test_voting_classifier(given: Given) -> None:
    words = make_pipeline(TfidfVectorizer(), LogisticRegression())
    given.fits(VotingClassifier([("bert", given.bert), ("words", words)], voting="soft"))


def test_stacking_classifier(given: Given) -> None:
    words = make_pipeline(TfidfVectorizer(), LogisticRegression())
    given.fits(StackingClassifier([("bert", given.bert), ("words", words)], cv=2))


def test_bagging_classifier(given: Given) -> None:
    fitted = given.fits(BaggingClassifier(given.bert, n_estimators=2, random_state=0), given.column)
    assert len({each.random_state for each in fitted.estimators_}) == 2
    with pytest.raises(ValueError, match="Expected 2D array"):
        BaggingClassifier(given.bert, n_estimators=2).fit(given.X, given.y)


def test_ada_boost_classifier(given: Given) -> None:
    better = clone(given.bert).set_params(max_steps=None, num_train_epochs=15)
    column = np.array(["red", "cat", "blue", "dog"] * 6, dtype=object)[:, None]
    given.fits(AdaBoostClassifier(better, n_estimators=2), column, ["colour", "animal"] * 12)


def test_one_vs_rest_classifier(given: Given) -> None:
    given.fits(OneVsRestClassifier(given.bert), y=["a", "b", "c"] * 8)


def test_multi_output_classifier(given: Given) -> None:
    given.fits(MultiOutputClassifier(given.bert), y=np.array([[0, 1], [2, 0], [1, 1]] * 8))


def test_transformed_target_regressor(given: Given) -> None:
    regressor = BertRegressor(**given.params)
    scaled = TransformedTargetRegressor(regressor, transformer=StandardScaler())
    given.fits(scaled, y=np.arange(24.0))


def test_feature_union(given: Given) -> None:
    vectors = make_union(BertVectorizer(given.params["model"]), TfidfVectorizer())
    given.fits(make_pipeline(vectors, LogisticRegression()))


def test_select_k_best(given: Given) -> None:
    vectorizer = BertVectorizer(given.params["model"])
    given.fits(make_pipeline(vectorizer, SelectKBest(k=4), LogisticRegression()))


def test_joblib(given: Given, tmp_path: Path) -> None:
    fitted = clone(given.bert).fit(given.X, given.y)
    joblib.dump(fitted, tmp_path / "bert.joblib")
    again = joblib.load(tmp_path / "bert.joblib")
    np.testing.assert_array_equal(again.predict_proba(given.X), fitted.predict_proba(given.X))


@pytest.mark.parametrize(
    "tool", [OneVsOneClassifier, ClassifierChain, SelfTrainingClassifier], ids=lambda t: t.__name__
)
def test_tools_that_want_numbers(given: Given, tool: Any) -> None:
    y = np.array([[0, 1], [1, 0]] * 12) if tool is ClassifierChain else [0, 1, -1] * 8
    with pytest.raises(ValueError, match=r"could not convert string to float|numeric"):
        tool(given.bert).fit(given.column, y)


def test_the_guide_has_a_row_for_each_tool() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "scikit-learn.md").read_text(encoding="utf-8")
    table = guide[guide.index("## Inside scikit-learn's tools") :].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    ours = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    ours -= {"tools_that_want_numbers", "the_guide_has_a_row_for_each_tool"}
    refused = {"OneVsOneClassifier", "ClassifierChain", "SelfTrainingClassifier"}
    snake = {re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower() for name in rows if name not in refused}
    assert {name.replace("_c_v", "_cv") for name in snake} == ours
    assert refused <= {*rows}
