"""BertClassifier on a matrix y: any number of labels a text, beside scikit-learn's metrics."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse
from sklearn.metrics import accuracy_score, average_precision_score, f1_score
from sklearn.model_selection import cross_val_predict, cross_val_score
from sklearn.multioutput import MultiOutputClassifier
from sklearn.preprocessing import MultiLabelBinarizer
from sklearn.utils import get_tags

from tidybert.cli.main import run as shell
from tidybert.errors import DataError, UsageError
from tidybert.estimators import BertClassifier, BertTagger
from tidybert.inference.predictor import Predictor
from tidybert.metrics.text_scores import f1_thresholds
from tidybert.tasks.multi_label import MultiLabelClassification

Quick = dict[str, Any]
Data = Callable[..., tuple[list[str], npt.NDArray[Any]]]

WORDS = {"animal": ("cat", "dog", "cow", "hen"), "colour": ("red", "green", "blue", "white")}
FILLER = ("the", "old", "and", "new", "a", "was", "is", "we", "saw")


@pytest.fixture(scope="module")
def named() -> Data:
    """Makes texts that name an animal, a colour, both or neither, and their columns of 0 and 1."""

    def build(count: int, seed: int = 0) -> tuple[list[str], npt.NDArray[Any]]:
        random = np.random.default_rng(seed)
        sets = [
            {name for name, true in zip(WORDS, random.random(2) < 0.5, strict=True) if true}
            for _ in range(count)
        ]
        X = []
        for each in sets:
            words = [*random.choice(FILLER, 4), *(random.choice(WORDS[name]) for name in each)]
            random.shuffle(words)
            X.append(" ".join(words))
        return X, MultiLabelBinarizer(classes=list(WORDS)).fit_transform(sets)

    return build


@pytest.fixture(scope="module")
def fitted(thorough: Quick, named: Data) -> BertClassifier:
    """Fitted with a part held out, so with thresholds; not to be changed."""
    return BertClassifier(**thorough, validation_fraction=0.25).fit(*named(160))


def test_learns_and_predicts(fitted: BertClassifier, named: Data) -> None:
    X, Y = named(60, seed=1)
    predicted = fitted.predict(X)
    assert predicted.shape == Y.shape
    assert predicted.dtype == Y.dtype
    assert fitted.classes_.tolist() == [0, 1]
    assert isinstance(fitted.task_, MultiLabelClassification)
    assert f1_score(Y, predicted, average="macro") > 0.9
    assert fitted.score(X, Y) == accuracy_score(Y, predicted) == (predicted == Y).all(1).mean()
    probabilities = fitted.predict_proba(X)
    assert probabilities.shape == Y.shape
    assert average_precision_score(Y, probabilities) > 0.95
    np.testing.assert_allclose(fitted.predict_log_proba(X), np.log(probabilities), rtol=1e-6)
    logits = fitted.decision_function(X) / fitted.task_.temperature
    np.testing.assert_allclose(1 / (1 + np.exp(-logits)), probabilities, rtol=1e-9)


def test_thresholds_are_tuned_on_the_part_held_out(
    fitted: BertClassifier, quick: Quick, named: Data
) -> None:
    X, Y = named(160)
    held_out = fitted.validation_indices_
    assert len(held_out) == 40
    expected, tuned = f1_thresholds(Y[held_out], fitted.predict_proba([X[at] for at in held_out]))
    assert tuned.all()
    np.testing.assert_allclose(list(fitted.task_.thresholds.values()), expected, rtol=1e-5)
    chosen = fitted.predict_proba(X) >= [*fitted.task_.thresholds.values()]
    np.testing.assert_array_equal(fitted.predict(X), chosen)
    without = BertClassifier(**quick).fit(X, Y)
    assert without.task_.thresholds == {}
    np.testing.assert_array_equal(without.predict(X), without.predict_proba(X) >= 0.5)


@pytest.mark.parametrize(
    "form",
    [
        lambda Y: Y.tolist(),
        lambda Y: Y.astype(bool),
        lambda Y: Y.astype(float),
        scipy.sparse.csr_matrix,
        scipy.sparse.coo_array,
        lambda Y: pytest.importorskip("pandas").DataFrame(Y),
    ],
    ids=["lists", "bool", "float", "csr_matrix", "coo_array", "frame"],
)
def test_the_form_of_y_makes_no_difference(quick: Quick, named: Data, form: Any) -> None:
    X, Y = named(24)
    given = form(Y)
    one, other = (BertClassifier(**quick).fit(X, each) for each in (Y, given))
    np.testing.assert_array_equal(one.decision_function(X), other.decision_function(X))
    assert other.classes_.tolist() == [0, 1]
    assert isinstance(other.predict(X), np.ndarray)
    assert other.score(X, given) == one.score(X, Y)


def test_the_columns_of_a_frame_name_the_labels(
    quick: Quick, named: Data, tmp_path: Path, capsys: Any
) -> None:
    pandas = pytest.importorskip("pandas")
    X, Y = named(24)
    fitted = BertClassifier(**quick).fit(X, pandas.DataFrame(Y, columns=list(WORDS)))
    assert fitted.classes_.tolist() == list(WORDS)
    fitted.save(tmp_path / "run")
    answers = Predictor(tmp_path / "run").predict(X)
    assert [[name in one["labels"] for name in WORDS] for one in answers] == fitted.predict(
        X
    ).astype(bool).tolist()
    file = tmp_path / "dev.csv"
    rows = [f"{text},{a},{b}" for text, (a, b) in zip(X, Y.tolist(), strict=True)]
    file.write_text("\n".join(["text,animal,colour", *rows]))
    flags = ["--label", "animal,colour", "--json"]
    assert shell(["evaluate", str(tmp_path / "run"), str(file), *flags]) == 0
    assert f'"subset_accuracy": {fitted.score(X, Y)}' in capsys.readouterr().out


def test_pickles_and_runs_keep_thresholds(
    fitted: BertClassifier, named: Data, tmp_path: Path
) -> None:
    X, _ = named(24, seed=3)
    fitted.save(tmp_path)
    for other in (pickle.loads(pickle.dumps(fitted)), BertClassifier.load(tmp_path)):
        np.testing.assert_array_equal(other.decision_function(X), fitted.decision_function(X))
        np.testing.assert_array_equal(other.predict(X), fitted.predict(X))
        assert other.classes_.tolist() == [0, 1]
        assert other.task_.thresholds == fitted.task_.thresholds
    with pytest.raises(UsageError, match=r"trained to multi-label.*BertClassifier\.load"):
        BertTagger.load(tmp_path)


def test_cross_validation(quick: Quick, named: Data) -> None:
    X, Y = named(48)
    estimator = BertClassifier(**quick)
    scores = cross_val_score(estimator, X, Y, cv=2, error_score="raise")
    predicted = cross_val_predict(estimator, X, scipy.sparse.csr_array(Y), cv=2)
    assert scores.mean() == pytest.approx(accuracy_score(Y, predicted))
    by_f1 = cross_val_score(estimator, X, Y, cv=2, scoring="f1_micro", error_score="raise")
    assert by_f1.shape == (2,)
    assert get_tags(estimator).classifier_tags.multi_label


def test_a_column_without_a_one_keeps_its_place(quick: Quick, named: Data) -> None:
    X, Y = named(24)
    wider = np.column_stack([np.zeros(24, int), Y])
    fitted = BertClassifier(**quick, validation_fraction=0.25).fit(X, wider)
    assert fitted.predict_proba(X).shape == (24, 3)
    assert fitted.predict_proba(X)[:, 0].max() < fitted.predict_proba(X)[:, 1:].max()


def test_class_weights(quick: Quick, named: Data) -> None:
    X, Y = named(24)
    rare = dict.fromkeys(range(Y.shape[1]), 5.0)
    shares = [
        BertClassifier(**quick, class_weight=each).fit(X, Y).predict_proba(X).mean()
        for each in (None, rare)
    ]
    assert shares[1] > shares[0] + 0.05
    with pytest.raises(UsageError, match="class_weight names the label 'x', which y does not have"):
        BertClassifier(**quick, class_weight={"x": 2.0}).fit(X, Y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.array([[0, 1], [2, 1]]), r"y\[1, 0\] is 2: expected one label.*MultiOutputClassifier"),
        (np.array([[1, 2], [2, 1]]), r"y\[0, 1\] is 2: "),
        (np.array([[0.5, 1], [0, 1]]), r"y\[0, 0\] is 0.5: "),
        (np.array([[0, np.nan], [0, 1]]), r"y\[0, 1\] is missing \(None or NaN\)"),
        ([[0, None], [0, 1]], r"y\[0, 1\] is missing"),
        ([["a", "b"], ["c", "d"]], r"y holds lists: .*MultiLabelBinarizer\(\)\.fit_transform\(y\)"),
        ([["a", "b"], ["c"]], "MultiLabelBinarizer"),
        ([{"a", "b"}, {"c"}], "MultiLabelBinarizer"),
        ([["a"], []], "MultiLabelBinarizer"),
        (np.zeros((2, 2)), r"y of shape \(2, 2\) is 0 everywhere"),
        (np.ones((2, 0)), r"y has the shape \(2, 0\)"),
        (scipy.sparse.csr_array([[1], [0]]), r"shape \(2, 1\): .*two labels at least"),
        (np.ones((3, 2)), "X has 2 examples and y has 3: expected one row of y"),
        (np.ones((2, 2, 2)), "array with dim 3"),
    ],
)
def test_what_is_no_matrix_of_labels(y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        BertClassifier("nowhere").fit(["a red", "a cat"], y)
    assert isinstance(raised.value, DataError) or "dim 3" in message


def test_several_columns_of_classes_take_one_estimator_each(quick: Quick, named: Data) -> None:
    X, Y = named(24)
    classes = np.column_stack([Y[:, 0] + Y[:, 1], Y[:, 0]])
    several = MultiOutputClassifier(BertClassifier(**quick)).fit(X, classes)
    assert several.predict(X).shape == (24, 2)
