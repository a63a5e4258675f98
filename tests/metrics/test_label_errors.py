"""Suspected label errors by hand, against the definition, and where labels were really flipped."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidybert.metrics.label_errors import (
    SuspectedLabelError,
    estimated_label_errors,
    suspected_label_errors,
)


def test_a_literal_example():
    """By hand: the averages are 0.6 and 0.65; one of three sure labels of class 0 is wrong, so one
    of four is.  The third label is the least likely."""
    probabilities = [[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.45, 0.55], [0.2, 0.8], [0.5, 0.5]]

    found = suspected_label_errors(probabilities, [0, 0, 0, 0, 1, 1])

    assert found == [SuspectedLabelError(example=2, given=0, suggested=1)]


def test_the_least_likely_label_comes_first_and_not_the_widest_margin():
    p = [[0.90, 0.05, 0.05], [0.01, 0.50, 0.49], [0.02, 0.97, 0.01], [0, 0.2, 0.8], [0, 0.4, 0.6]]

    found = suspected_label_errors(p, [0, 0, 0, 1, 2])

    assert [each.example for each in found[:2]] == [1, 2]


def test_labels_of_classes_are_not_judged_where_asked():
    p, labels = [[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.2, 0.8], [0.9, 0.1]], [0, 0, 0, 1, 1]

    assert suspected_label_errors(p, labels)
    only = suspected_label_errors(p, labels, judged=[True, False])
    assert all(each.given == 0 for each in only)
    assert suspected_label_errors(p, labels, judged=[False, False]) == []


@given(seed=st.integers(0, 100_000), count=st.integers(1, 30), classes=st.integers(2, 5))
def test_the_definition_example_by_example(seed, count, classes):
    random = np.random.default_rng(seed)
    p = random.dirichlet(np.ones(classes), count)
    labels = random.integers(0, classes, count)
    other = [at for at in range(count) if p[at].argmax() != labels[at]]
    other.sort(key=lambda at: p[at, labels[at]])

    found = suspected_label_errors(p, labels)

    assert [each.example for each in found] == other[: estimated_label_errors(p, labels)]
    assert all(each.suggested == p[each.example].argmax() for each in found)


def test_most_flipped_labels_of_a_good_model_are_found_and_no_others():
    random = np.random.default_rng(0)
    truth = random.integers(0, 4, 500)
    p = np.full((500, 4), 0.05)
    p[np.arange(500), truth] = 0.85
    p = np.clip(p + random.normal(scale=0.05, size=p.shape), 0.001, None)
    p /= p.sum(1, keepdims=True)
    flipped = random.choice(500, 20, replace=False)
    labels = truth.copy()
    labels[flipped] = (labels[flipped] + 1) % 4

    found = suspected_label_errors(p, labels)

    assert {each.example for each in found} <= set(flipped.tolist())
    assert all(each.suggested == truth[each.example] for each in found)
    assert len(found) > 10


def test_the_number_of_errors_is_that_of_the_calibrated_confident_joint() -> None:
    """By hand: the averages are 0.6 and 0.65, and the fourth example is sure of neither class."""
    p = [[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.6 - 1e-9, 0.4], [0.2, 0.8], [0.5, 0.5]]
    labels = [0, 0, 0, 0, 1, 1]

    # Of class 0, one of three sure examples is wrong: 4/3 of four.  Of class 1 none is.
    assert estimated_label_errors(p, labels) == 1
    # Ten times as many examples have ten times as many errors, before rounding.
    assert estimated_label_errors(p * 10, labels * 10) == 13
    assert estimated_label_errors([[0.9, 0.1], [0.1, 0.9]], [0, 1]) == 0
