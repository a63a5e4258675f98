"""Temperature, calibration error, Brier score and coverage against SciPy and scikit-learn."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidybert.metrics.calibration import (
    HIGHEST_TEMPERATURE,
    LOWEST_TEMPERATURE,
    brier_score,
    expected_calibration_error,
    fit_temperature,
    reliability_bins,
    risk_coverage,
    temperature_note,
)


def sample(seed, count=200, classes=4, scale=3.0):
    """Logits, and labels drawn from the probabilities that they mean at temperature ``scale``."""
    random = np.random.default_rng(seed)
    logits = random.normal(size=(count, classes)) * scale
    p = softmax(logits / scale)
    return logits, np.array([random.choice(classes, p=row) for row in p])


def softmax(logits):
    shifted = np.exp(logits - logits.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


# --- temperature


def test_a_temperature_by_hand():
    # Three of four are right at a logit of 2: at the best T the probability is 3/4.
    logits = np.array([[2.0, 0.0]] * 4)
    assert fit_temperature(logits, [0, 0, 0, 1], prior=0) == pytest.approx(2 / math.log(3))


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), classes=st.integers(2, 6), scale=st.floats(0.3, 5))
def test_the_temperature_is_scipys(seed, classes, scale):
    from scipy.optimize import minimize_scalar
    from sklearn.metrics import log_loss

    logits, labels = sample(seed, 60, classes, scale)

    def loss(temperature):
        return log_loss(labels, softmax(logits / temperature), labels=range(classes))

    bounds = (LOWEST_TEMPERATURE, HIGHEST_TEMPERATURE)
    best = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-9}).x
    found = fit_temperature(logits, labels, prior=0)

    assert loss(found) <= loss(best) + 1e-9
    if bounds[0] + 1e-3 < best < bounds[1] - 1e-3:
        assert found == pytest.approx(best, rel=1e-3)


def test_the_temperature_that_made_the_labels_is_found():
    logits, labels = sample(0, count=20_000)
    assert fit_temperature(logits, labels, prior=0) == pytest.approx(3, rel=0.05)


@given(factor=st.floats(0.5, 2), shift=st.floats(-50, 50))
def test_logits_times_a_factor_have_a_temperature_times_that_factor(factor, shift):
    logits, labels = sample(1, 80)
    expected = factor * fit_temperature(logits, labels, prior=0)
    assert fit_temperature(logits * factor + shift, labels, prior=0) == pytest.approx(expected)


def test_ragged_rows_are_rows_filled_with_impossible_candidates():
    logits, labels = sample(3, 80)
    lengths = np.random.default_rng(0).integers(2, 5, 80)
    kept = labels < lengths
    padded = np.where(np.arange(4) < lengths[:, None], logits, -1e4)[kept]
    rows = [row[:size] for row, size in zip(logits[kept], lengths[kept], strict=True)]

    found = fit_temperature(rows, labels[kept])

    assert found == pytest.approx(fit_temperature(padded, labels[kept]))


def test_where_every_example_is_right_the_prior_alone_bounds_the_temperature():
    assert fit_temperature([[3.0, 0.0], [0.0, 0.1], [1.0, 1.0]], [0, 1, 0], prior=0) == 1.0
    assert fit_temperature([[1.0, 1.0]], [1]) == 1.0
    # Of 4 right ones and 20 of the prior, this share is right at the best T.
    p = 1 / (1 + math.exp(-2.0))
    share = (4 + 20 * p) / 24
    expected = 2 / math.log(share / (1 - share))
    assert fit_temperature([[2.0, 0.0]] * 4, [0] * 4) == pytest.approx(expected)
    assert expected < 1


def test_a_prior_draws_the_temperature_of_few_examples_to_1() -> None:
    logits, labels = [[2.0, 0.0]] * 4, [0, 0, 0, 1]
    free = fit_temperature(logits, labels, prior=0)
    few = fit_temperature(logits, labels)
    many = fit_temperature(logits * 1000, labels * 1000)
    assert 1 < few < many < free
    assert many == pytest.approx(free, rel=0.01)
    # A prior of n examples is n examples whose labels are as probable as the logits say.
    p = 1 / (1 + math.exp(-2.0))
    share = (3 + 20 * p) / 24
    assert few == pytest.approx(2 / math.log(share / (1 - share)))


def test_a_bound_is_told():
    # One of ten thousand is wrong, by a hair: the best temperature lies far below the bound.
    logits = np.tile([0.001, 0.0], (10_000, 1))
    labels = np.zeros(10_000, dtype=int)
    labels[0] = 1
    lowest = fit_temperature(logits, labels, prior=0)
    highest = fit_temperature([[5.0, 0.0]] * 3, [1, 1, 0], prior=0)

    assert lowest == LOWEST_TEMPERATURE
    assert "lower bound" in temperature_note(lowest)
    assert highest == HIGHEST_TEMPERATURE
    assert "upper bound" in temperature_note(highest)
    assert temperature_note(1.0) is None


def test_huge_logits_overflow_nowhere():
    with np.errstate(all="raise", under="ignore"):
        found = fit_temperature([[1e6, 0.0], [0.0, 1e6], [0.0, 1e6]], [0, 1, 0], prior=0)
    assert found == HIGHEST_TEMPERATURE


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        (np.empty((0, 3)), [], "no example"),
        ([], [], "no example"),
        ([[]], [0], "not an index"),
        ([[0.0, 1.0]], [2], "not an index"),
        ([[0.0, 1.0]], [-1], "not an index"),
        ([[0.0, np.nan]], [0], "finite"),
        ([[0.0, 1.0]], [0, 1], "shape"),
        ([0.0, 1.0], [0, 1], "shape"),
    ],
)
def test_what_has_no_temperature_is_refused(logits, labels, message):
    with pytest.raises(ValueError, match=message):
        fit_temperature(logits, labels)


# --- calibration


def test_bins_by_hand():
    bins = reliability_bins([0.2, 0.5, 0.6, 0.9, 1.0], [0, 1, 0, 1, 1], num_bins=2)

    assert [(each.lower, each.upper, each.count) for each in bins] == [(0, 0.5, 2), (0.5, 1, 3)]
    assert [each.confidence for each in bins] == pytest.approx([0.35, 2.5 / 3])
    assert [each.accuracy for each in bins] == pytest.approx([0.5, 2 / 3])
    expected = (2 * 0.15 + 3 * (2.5 / 3 - 2 / 3)) / 5
    assert expected_calibration_error(bins) == pytest.approx(expected)


CONFIDENCES = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 1)), min_size=1, max_size=80
).filter(lambda pairs: len({right for _, right in pairs}) == 2)


@pytest.mark.parametrize("equal_mass", [False, True])
@settings(max_examples=40)
@given(pairs=CONFIDENCES, num_bins=st.integers(1, 20))
@example(pairs=[(at / 16, 0) for at in range(1, 10)] + [(0.8742185034475249, 1)], num_bins=9)
def test_bins_are_scikit_learns(equal_mass, pairs, num_bins):
    from sklearn.calibration import calibration_curve

    confidence, correct = np.array(pairs).T
    strategy = "quantile" if equal_mass else "uniform"
    accuracy, mean = calibration_curve(correct, confidence, n_bins=num_bins, strategy=strategy)

    bins = reliability_bins(confidence, correct, num_bins, equal_mass=equal_mass)

    assert [each.accuracy for each in bins] == pytest.approx(accuracy.tolist())
    assert [each.confidence for each in bins] == pytest.approx(mean.tolist())
    assert sum(each.count for each in bins) == len(pairs)


def test_calibrated_confidence_has_little_error_and_a_temperature_lessens_it():
    logits, labels = sample(5, count=20_000)

    def error(temperature):
        p = softmax(logits / temperature)
        return expected_calibration_error(reliability_bins(p.max(1), p.argmax(1) == labels))

    assert error(fit_temperature(logits, labels)) < 0.02
    assert error(1.0) > 0.2


def test_shares_of_an_answer_count_as_shares():
    (only,) = reliability_bins([0.9, 0.9], [0.5, 1.0], num_bins=1)
    assert only.accuracy == 0.75


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), classes=st.integers(2, 5))
def test_the_brier_score_is_scikit_learns(seed, classes):
    from sklearn.metrics import brier_score_loss

    logits, labels = sample(seed, 20, classes)
    p = softmax(logits)
    expected = brier_score_loss(labels, p, labels=range(classes), scale_by_half=False)
    assert brier_score(p, labels) == pytest.approx(expected)


def test_the_brier_score_of_certainty():
    assert brier_score([[1.0, 0.0], [1.0, 0.0]], [0, 1]) == 1.0


# --- coverage


def test_coverage_by_hand():
    curve = risk_coverage([0.9, 0.8, 0.8, 0.5], [1, 1, 0, 0])

    assert curve.threshold.tolist() == [0.9, 0.8, 0.5]
    assert curve.coverage.tolist() == [0.25, 0.75, 1.0]
    assert curve.risk.tolist() == pytest.approx([0, 1 / 3, 1 / 2])
    assert curve.aurc == pytest.approx((0 + 0.25 + 1 / 3 + 1 / 2) / 4)


@settings(max_examples=40)
@given(
    pairs=st.lists(
        st.tuples(st.sampled_from([0.2, 0.5, 0.9]), st.integers(0, 1)), min_size=1, max_size=6
    )
)
def test_the_area_is_the_mean_over_the_orders_of_equal_confidence(pairs):
    areas = []
    for order in itertools.permutations(pairs):
        if all(first[0] >= second[0] for first, second in itertools.pairwise(order)):
            wrong = 1 - np.array([correct for _, correct in order])
            areas.append((np.cumsum(wrong) / np.arange(1, len(pairs) + 1)).mean())
    confidence, correct = np.array(pairs).T
    curve = risk_coverage(confidence, correct)

    assert curve.aurc == pytest.approx(np.mean(areas))
    assert curve.coverage[-1] == 1
    assert curve.risk[-1] == pytest.approx(1 - correct.mean())


@pytest.mark.parametrize("measure", [reliability_bins, risk_coverage])
@pytest.mark.parametrize(
    ("confidence", "correct", "message"),
    [
        ([0.5], [0, 1], "one length"),
        ([1.5], [1], "confidence must lie"),
        ([np.nan], [1], "confidence must lie"),
        ([0.5], [2], "correct must lie"),
    ],
)
def test_what_is_no_confidence_is_refused(measure, confidence, correct, message):
    with pytest.raises(ValueError, match=message):
        measure(confidence, correct)
