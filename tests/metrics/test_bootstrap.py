"""Bootstrap intervals by hand and against SciPy; what happens when time runs out."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidybert.metrics import bootstrap as module
from tidybert.metrics import classification_metrics
from tidybert.metrics.bootstrap import Interval, bootstrap, proportion_interval


def mean_of(values):
    array = np.array(values, dtype=float)
    return lambda indices: {"mean": float(array[indices].mean())}


def test_two_examples_by_hand():
    # The means of two draws from {0, 1} are 0, 1/2 and 1 with probabilities 1/4, 1/2 and 1/4.
    scorer = mean_of([0, 1])
    assert bootstrap(scorer, 2).by_name == {"mean": Interval(0, 1)}
    assert bootstrap(scorer, 2, level=0.4).by_name == {"mean": Interval(0.5, 0.5)}


def test_three_examples_against_all_their_resamples():
    values = [0.0, 1.0, 5.0]
    every = [np.mean(draw) for draw in itertools.product(values, repeat=3)]
    expected = np.quantile(every, [0.1, 0.9], method="inverted_cdf")

    found = bootstrap(mean_of(values), 3, level=0.8, num_resamples=5000).by_name["mean"]

    assert [found.low, found.high] == pytest.approx(expected.tolist())


def test_accuracy_is_scipys():
    from scipy import stats

    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 400)
    predictions = np.where(random.random(400) < 0.85, labels, 1 - labels)

    def scorer(indices):
        scores = classification_metrics(labels[indices], predictions[indices], ["no", "yes"])
        return {"accuracy": scores["accuracy"], "macro_f1": scores["macro_f1"]}

    found = bootstrap(scorer, 400, num_resamples=4000).by_name
    theirs = stats.bootstrap(
        ((labels == predictions).astype(float),),
        np.mean,
        method="percentile",
        n_resamples=4000,
        rng=np.random.default_rng(1),
    ).confidence_interval

    assert set(found) == {"accuracy", "macro_f1"}
    assert found["accuracy"].low == pytest.approx(theirs.low, abs=0.005)
    assert found["accuracy"].high == pytest.approx(theirs.high, abs=0.005)


def test_an_interval_covers_the_truth_as_often_as_it_says():
    random = np.random.default_rng(0)
    covered = 0
    for seed in range(200):
        interval = bootstrap(
            mean_of(random.random(100) < 0.7), 100, num_resamples=200, seed=seed
        ).by_name["mean"]
        covered += interval.low <= 0.7 <= interval.high
    assert 0.88 <= covered / 200 <= 0.99


def test_a_seed_decides_the_resamples():
    scorer = mean_of(np.random.default_rng(0).random(50))
    assert bootstrap(scorer, 50, seed=3) == bootstrap(scorer, 50, seed=3)
    assert bootstrap(scorer, 50, seed=3).by_name != bootstrap(scorer, 50, seed=4).by_name


@pytest.fixture
def clock(monkeypatch):
    """A clock that each scoring moves on by a second."""
    now = [0.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def slow(indices):
        now[0] += 1
        return {"mean": float(indices.mean())}

    return slow


@pytest.mark.parametrize(("seconds", "drawn"), [(0, 1), (20, 20), (99.5, 100), (150, 150)])
def test_time_that_runs_out_is_told_and_too_little_gives_no_interval(clock, seconds, drawn):
    found = bootstrap(clock, 10, max_seconds=seconds)

    assert found.num_resamples == drawn
    assert set(found.by_name) == ({"mean"} if drawn >= 100 else set())


@given(right=st.integers(0, 40), wrong=st.integers(0, 40))
def test_a_proportions_interval_is_scipys(right, wrong):
    from scipy import stats

    if not right + wrong:
        wrong = 1
    expected = stats.binomtest(right, right + wrong).proportion_ci(method="wilson")

    found = proportion_interval(right / (right + wrong), right + wrong)

    assert [found.low, found.high] == pytest.approx([expected.low, expected.high], abs=1e-12)
