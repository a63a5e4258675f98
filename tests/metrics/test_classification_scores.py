"""Classification metrics against literal values and scikit-learn."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidybert.metrics import classification_metrics, confusion_matrix
from tidybert.metrics.text_scores import ClassScorer, by_label, precision_recall_f1, ratio


def test_literal_example():
    result = classification_metrics([0, 0, 1, 1], [0, 1, 1, 1], ["no", "yes"])
    assert result["accuracy"] == 0.75
    assert result["macro_f1"] == pytest.approx((2 / 3 + 0.8) / 2)
    assert result["matthews"] == pytest.approx(1 / 3**0.5)
    assert result["f1"] == pytest.approx(0.8)
    no, yes = result["per_label"]["no"], result["per_label"]["yes"]
    assert (no["precision"], no["recall"], no["f1"]) == pytest.approx((1.0, 0.5, 2 / 3))
    assert (yes["precision"], yes["recall"], yes["f1"]) == pytest.approx((2 / 3, 1.0, 0.8))
    assert (no["support"], yes["support"]) == (2, 2)
    assert result["confusion_matrix"] == [[1, 1], [0, 2]]


CASES = st.integers(2, 5).flatmap(
    lambda num_labels: st.tuples(
        st.just(num_labels),
        st.lists(
            st.tuples(st.integers(0, num_labels - 1), st.integers(0, num_labels - 1)),
            min_size=1,
            max_size=40,
        ),
        st.integers(0, 1000),
    )
)


@pytest.mark.filterwarnings("ignore::UserWarning")
@settings(max_examples=30, deadline=None)
@given(case=CASES)
def test_equal_to_scikit_learn(case):
    from sklearn import metrics

    num_labels, pairs, seed = case
    labels, predictions = np.array(pairs).T
    names = [f"class {at}" for at in range(num_labels)]
    raw = np.random.default_rng(seed).random((len(pairs), num_labels))
    probabilities = raw / raw.sum(axis=1, keepdims=True)
    result = classification_metrics(labels, predictions, names, probabilities)
    json.dumps(result, allow_nan=False)
    every = list(range(num_labels))
    assert result["accuracy"] == pytest.approx(metrics.accuracy_score(labels, predictions))
    macro = metrics.f1_score(labels, predictions, average="macro", zero_division=0)
    assert result["macro_f1"] == pytest.approx(macro)
    matthews = metrics.matthews_corrcoef(labels, predictions)
    assert result["matthews"] == pytest.approx(matthews)
    loss = metrics.log_loss(labels, probabilities, labels=every)
    assert result["log_loss"] == pytest.approx(loss)
    rows = metrics.precision_recall_fscore_support(
        labels, predictions, labels=every, zero_division=0
    )
    for name, row in zip(names, zip(*rows, strict=True), strict=True):
        assert list(result["per_label"][name].values()) == pytest.approx([float(x) for x in row])
    matrix = metrics.confusion_matrix(labels, predictions, labels=every)
    assert np.array_equal(confusion_matrix(labels, predictions, num_labels), matrix)
    if num_labels == 2:
        positive = metrics.f1_score(labels, predictions, pos_label=1, zero_division=0)
        assert result["f1"] == pytest.approx(positive)
    else:
        assert "f1" not in result


@settings(max_examples=30, deadline=None)
@given(case=CASES)
def test_a_selection_has_the_bits_of_its_rows_alone(case):
    num_labels, pairs, seed = case
    labels, predictions = np.array(pairs).T
    random = np.random.default_rng(seed)
    probabilities = random.dirichlet(np.ones(num_labels), len(pairs))
    scorer = ClassScorer(labels, predictions, num_labels, probabilities)
    chosen = random.integers(0, len(pairs), len(pairs))

    names = [f"class {at}" for at in range(num_labels)]
    rows = (labels[chosen], predictions[chosen], names, probabilities[chosen])
    expected = classification_metrics(*rows)

    del expected["per_label"], expected["confusion_matrix"]
    assert scorer(chosen) == expected


def test_constant_predictions_are_no_nan():
    result = classification_metrics([0, 1, 0], [0, 0, 0], ["a", "b"])
    assert (result["matthews"], result["f1"]) == (0.0, 0.0)
    assert result["per_label"]["b"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 1}
    certain = [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]
    assert np.isfinite(classification_metrics([0, 1, 0], [0, 0, 0], "ab", certain)["log_loss"])


def test_a_class_that_does_not_occur_leaves_macro_f1_alone():
    assert classification_metrics([0, 1], [0, 1], ["a", "b", "c"])["macro_f1"] == 1.0


@pytest.mark.parametrize(
    ("labels", "predictions", "message"),
    [
        ([], [], "no example"),
        ([0, 1], [0], "arrays of one length"),
        ([0, 2], [0, 1], "labels from 0 to 2"),
        ([0, 1], [0, -1], "predictions from -1 to 0"),
    ],
)
def test_wrong_input(labels, predictions, message):
    with pytest.raises(ValueError, match=message):
        classification_metrics(labels, predictions, ["a", "b"])


def test_wrong_probabilities():
    with pytest.raises(ValueError, match="shape"):
        classification_metrics([0, 1], [0, 1], ["a", "b"], [[0.5, 0.5]])
    with pytest.raises(ValueError, match="finite"):
        classification_metrics([0], [0], ["a", "b"], [[float("nan"), 0.5]])


def test_a_quotient_by_nothing_is_zero() -> None:
    assert ratio(np.array([1, 0, 3]), np.array([2, 0, 0])).tolist() == [0.5, 0.0, 0.0]


def test_columns_become_plain_numbers_by_label() -> None:
    hits, predicted, support = np.array([1, 0]), np.array([2, 0]), np.array([1, 3])
    precision, _, f1 = precision_recall_f1(hits, predicted, support)

    found = by_label(["no", "yes"], precision=precision, f1=f1, support=support)

    assert found["no"] == {"precision": 0.5, "f1": 2 / 3, "support": 1}
    assert json.dumps(found["yes"]) == '{"precision": 0.0, "f1": 0.0, "support": 3}'
