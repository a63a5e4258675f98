"""Scores of sets of labels, and thresholds: scikit-learn's numbers, and the best of all cuts."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tidybert.metrics.text_scores import MultiLabelScorer, f1_thresholds, multi_label_metrics

NAMES = ("a", "b", "c")
matrices = st.integers(1, 30).flatmap(
    lambda rows: st.tuples(
        arrays.arrays(np.int64, (rows, 3), elements=st.integers(0, 1)),
        # Few values, so that many are equal.
        arrays.arrays(np.float64, (rows, 3), elements=st.integers(1, 9).map(lambda n: n / 10)),
    )
)


def theirs(labels: Any, predictions: Any, scores: Any) -> dict[str, float]:
    """scikit-learn's numbers."""
    from sklearn import metrics

    precisions = [
        metrics.average_precision_score(labels[:, at], scores[:, at]) if labels[:, at].any() else 0
        for at in range(labels.shape[1])
    ]
    return {
        "micro_f1": metrics.f1_score(labels, predictions, average="micro", zero_division=0),
        "macro_f1": metrics.f1_score(labels, predictions, average="macro", zero_division=0),
        "subset_accuracy": metrics.accuracy_score(labels, predictions),
        "hamming_loss": metrics.hamming_loss(labels, predictions),
        "macro_average_precision": float(np.mean(precisions)),
    }


def test_a_literal_example() -> None:
    labels = [[1, 0, 0], [1, 1, 0], [0, 0, 0], [0, 1, 0]]
    predictions = [[1, 0, 0], [1, 0, 0], [0, 0, 1], [0, 1, 0]]
    probabilities = [[0.9, 0.1, 0.2], [0.8, 0.2, 0.1], [0.1, 0.3, 0.7], [0.2, 0.9, 0.4]]

    metrics = multi_label_metrics(labels, predictions, NAMES, probabilities)

    assert metrics["subset_accuracy"] == 0.5
    assert metrics["hamming_loss"] == pytest.approx(2 / 12)
    assert metrics["micro_f1"] == pytest.approx(2 * 3 / (4 + 4))
    assert metrics["macro_f1"] == pytest.approx((1 + 2 / 3 + 0) / 3)
    of_b = metrics["per_label"]["b"]
    assert (of_b["precision"], of_b["recall"], of_b["f1"]) == pytest.approx((1.0, 0.5, 2 / 3))
    assert of_b["average_precision"] == pytest.approx((1 + 2 / 3) / 2)
    assert (of_b["support"], of_b["predicted"]) == (2, 1)
    assert metrics["per_label"]["c"]["average_precision"] == 0.0


@given(matrices)
def test_the_numbers_are_scikit_learns(given_matrices: Any) -> None:
    labels, scores = given_matrices
    predictions = (scores > 0.5).astype(int)

    metrics = multi_label_metrics(labels, predictions, NAMES, scores)

    expected = theirs(labels, predictions, scores)
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, abs=1e-12)


@given(matrices, st.integers(0, 1000))
def test_a_selection_scores_as_its_examples_do(given_matrices: Any, seed: int) -> None:
    labels, scores = given_matrices
    chosen = np.random.default_rng(seed).integers(0, len(labels), len(labels))

    found = MultiLabelScorer(labels, scores > 0.5, scores)(chosen)

    expected = theirs(labels[chosen], (scores[chosen] > 0.5).astype(int), scores[chosen])
    assert found == pytest.approx(expected, abs=1e-12)


@given(matrices)
def test_no_cut_does_better_than_the_threshold(given_matrices: Any) -> None:
    from sklearn.metrics import f1_score, precision_recall_curve

    labels, scores = given_matrices

    thresholds, tuned = f1_thresholds(labels, scores, least_positives=1)

    for at in range(3):
        is_both = 0 < labels[:, at].sum() < len(labels)
        assert tuned[at] == is_both
        if not is_both:
            assert thresholds[at] == 0.5
            continue
        reached = f1_score(labels[:, at], scores[:, at] >= thresholds[at])
        # The last point is the one without any predicted label, whose recall is 0.
        precision, recall, _ = (
            e[:-1] for e in precision_recall_curve(labels[:, at], scores[:, at])
        )
        assert reached == pytest.approx(max(2 * precision * recall / (precision + recall + 1e-30)))


def test_a_threshold_lies_midway_and_of_equals_nearest_to_a_half() -> None:
    labels = np.array([[0], [0], [1], [1]])

    thresholds, tuned = f1_thresholds(labels, [[0.1], [0.2], [0.6], [0.7]], least_positives=2)
    assert (thresholds[0], tuned[0]) == (pytest.approx(0.4), True)

    # One of two true ones first, or all four examples: an F1 of 2/3 either way.
    labels = np.array([[1], [0], [0], [1]])
    thresholds, _ = f1_thresholds(labels, [[0.9], [0.8], [0.2], [0.1]], least_positives=2)
    assert thresholds[0] == pytest.approx(0.85)

    # All are true but one: the last threshold is midway to 0.
    labels = np.array([[0], [1], [1], [1]])
    thresholds, _ = f1_thresholds(labels, [[0.9], [0.8], [0.5], [0.4]], least_positives=1)
    assert thresholds[0] == pytest.approx(0.2)


def test_neighbours_of_floating_point_are_told_apart() -> None:
    low = 0.3
    high = np.nextafter(low, 1)

    thresholds, _ = f1_thresholds([[0], [1]], [[low], [high]], least_positives=1)

    assert low < thresholds[0] <= high


def test_few_true_or_false_examples_leave_a_half() -> None:
    labels = np.zeros((40, 3), dtype=int)
    labels[:9, 0] = 1
    labels[:10, 1] = 1
    labels[:31, 2] = 1
    scores = np.linspace(0.9, 0.6, 40)[:, None].repeat(3, axis=1)

    thresholds, tuned = f1_thresholds(labels, scores)

    assert tuned.tolist() == [False, True, False]
    assert thresholds[[0, 2]].tolist() == [0.5, 0.5]
    assert scores[9, 1] > thresholds[1] > scores[10, 1]


@pytest.mark.parametrize(
    ("labels", "predictions", "probabilities", "message"),
    [
        ([[2]], [[1]], [[0.5]], "labels of shape .* 0 and 1 is expected"),
        ([1], [[1]], [[0.5]], r"labels of shape \(1,\)"),
        ([[1]], [[1, 0]], [[0.5]], "one shape is expected"),
        ([[1]], [[1]], [[float("nan")]], "must be finite"),
        (np.zeros((0, 1)), np.zeros((0, 1)), np.zeros((0, 1)), "no example"),
        ([[1, 0]], [[1, 0]], [[0.5, 0.5]], "2 columns were given for 1 label names"),
    ],
)
def test_what_is_no_matrix_of_labels_is_refused(
    labels: Any, predictions: Any, probabilities: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        multi_label_metrics(labels, predictions, ["a"], probabilities)
