"""What a report measures beside the metrics: confidence, lengths, and how far off scores are."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from tidybert.metrics.bootstrap import proportion_interval
from tidybert.metrics.calibration import (
    brier_score,
    expected_calibration_error,
    reliability_bins,
    risk_coverage,
)
from tidybert.reporting.evaluation import Evaluation

if TYPE_CHECKING:
    from tidybert.tasks.answers import Search

MAX_POINTS: Final = 200
FEWEST_ANSWERED: Final = 20
_SHARES: Final = (1.0, 0.95, 0.9, 0.8, 0.7, 0.5)
MAX_GROUPS: Final = 6
FEWEST_IN_GROUP: Final = 20
MAX_DOTS: Final = 2000
NUM_RESIDUAL_BINS: Final = 21
NUM_COSINE_BINS: Final = 20
MOST_FRIENDS: Final = 25

_NORMAL_QUANTILE: Final = 1.96

Floats = npt.NDArray[np.float64]


def calibration(evaluation: Evaluation) -> dict[str, Any] | None:
    """Whether answers of 80 % confidence are right in 80 % of cases; None without confidence."""
    confidence, correct = _answered(evaluation)
    if not len(confidence):
        return None
    bins = reliability_bins(confidence, correct)
    equal = reliability_bins(confidence, correct, equal_mass=True)
    p = evaluation.probabilities
    return {
        "num_examples": len(confidence),
        "mean_confidence": float(confidence.mean()),
        "accuracy": float(correct.mean()),
        "expected_calibration_error": expected_calibration_error(bins),
        "equal_mass_calibration_error": expected_calibration_error(equal),
        "brier_score": None if p is None else brier_score(p, evaluation.labels()),
        "bins": [
            {**asdict(each), **asdict(proportion_interval(each.accuracy, each.count))}
            for each in bins
        ],
    }


def coverage(evaluation: Evaluation) -> dict[str, Any] | None:
    """Accuracy of the surest answers, for each share of them from FEWEST_ANSWERED on.

    None without confidence, or with fewer examples.
    """
    confidence, correct = _answered(evaluation)
    if len(confidence) < FEWEST_ANSWERED:
        return None
    curve = risk_coverage(confidence, correct)

    def at(place: int) -> dict[str, float]:
        return {
            "threshold": float(curve.threshold[place]),
            "coverage": float(curve.coverage[place]),
            "accuracy": float(1 - curve.risk[place]),
        }

    # The accuracy of fewer answers is chance.
    first = int(np.searchsorted(curve.coverage, FEWEST_ANSWERED / len(confidence) - 1e-9))
    places = np.unique(np.linspace(first, len(curve.risk) - 1, MAX_POINTS).round().astype(int))
    # The highest threshold that still answers each share; several shares may have the same one.
    firsts = np.unique(np.searchsorted(curve.coverage, np.array(_SHARES) - 1e-9))[::-1]
    firsts = firsts[firsts >= first]
    return {
        "num_examples": len(confidence),
        "aurc": curve.aurc,
        "points": [at(place) for place in places.tolist()],
        "choices": [at(place) for place in firsts.tolist()],
    }


def lengths(evaluation: Evaluation) -> list[dict[str, Any]] | None:
    """Examples by number of tokens, in groups of about equal size; None for a single group.

    A group has from, to, count, and the mean, low and high of accuracy, or of the absolute error
    of scores.
    """
    tokens = np.array([one.num_tokens for one in evaluation.judgements])
    count = min(MAX_GROUPS, len(tokens) // FEWEST_IN_GROUP)
    if count < 2:
        return None
    # Examples of one length stay together, so groups may be fewer and uneven.
    shares = np.linspace(0, 1, count + 1)[1:-1]
    edges = np.unique(np.quantile(tokens, shares, method="inverted_cdf"))
    places = np.searchsorted(edges, tokens)
    if evaluation.of_scores:
        expected, predicted = _scores(evaluation)
        values = np.abs(predicted - expected)
    else:
        values = np.array([one.correct or 0.0 for one in evaluation.judgements]).clip(0, 1)
    groups = [places == place for place in np.unique(places)]
    if len(groups) < 2:
        return None
    return [
        {
            "from": int(tokens[group].min()),
            "to": int(tokens[group].max()),
            "count": int(group.sum()),
            "mean": float(values[group].mean()),
            **_interval(values[group], is_share=not evaluation.of_scores),
        }
        for group in groups
    ]


def scores(evaluation: Evaluation) -> dict[str, Any]:
    """Predicted scores against the true ones, and the residuals (predicted minus true)."""
    expected, predicted = _scores(evaluation)
    residuals = predicted - expected
    # The bins are on both sides of 0, so that none holds scores that are too high and too low.
    largest = float(np.abs(residuals).max()) or 1.0
    counts, edges = np.histogram(residuals, np.linspace(-largest, largest, NUM_RESIDUAL_BINS + 1))
    places = np.unique(np.linspace(0, len(expected) - 1, MAX_DOTS).round().astype(int))
    return {
        "mean_residual": float(residuals.mean()),
        "mean_absolute_error": float(np.abs(residuals).mean()),
        "root_mean_square_error": float(np.sqrt(np.square(residuals).mean())),
        "points": [[float(expected[at]), float(predicted[at])] for at in places],
        "residuals": {"edges": edges.tolist(), "counts": counts.tolist()},
    }


def similarities(searches: Sequence["Search"]) -> dict[str, Any] | None:
    """Cosines of queries with the nearest right and the nearest wrong text; None without searches.

    ``false_friends`` are wrong texts that are nearer than the right one, the farthest ahead first.
    """
    if not searches:
        return None
    scores = np.array([[one.right_score, one.wrong_score] for one in searches])
    finite = np.where(np.isfinite(scores), scores, np.nan)
    # Rounding takes a cosine of equal vectors past 1.
    edges = np.linspace(float(np.nanmin(finite)), max(1.0, np.nanmax(finite)), NUM_COSINE_BINS + 1)
    right, wrong = (
        np.histogram(column[np.isfinite(column)], edges)[0].tolist() for column in scores.T
    )
    friends = [one for one in searches if one.wrong_score > one.right_score]
    friends.sort(key=lambda one: one.right_score - one.wrong_score)
    return {
        "edges": edges.tolist(),
        "right": right,
        "wrong": wrong,
        "false_friends": {
            "total": len(friends),
            "shown": [asdict(one) for one in friends[:MOST_FRIENDS]],
        },
    }


def _answered(evaluation: Evaluation) -> tuple[Floats, Floats]:
    """Confidence and correctness, (N,) each, of the judgements with both."""
    pairs = [
        (one.confidence, one.correct)
        for one in evaluation.judgements
        if one.confidence is not None and one.correct is not None
    ]
    both = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    # A softmax in floating point may come out a hair above 1.
    return both[:, 0].clip(0, 1), both[:, 1].clip(0, 1)


def _scores(evaluation: Evaluation) -> tuple[Floats, Floats]:
    pairs = [(float(one.expected), float(one.predicted)) for one in evaluation.judgements]
    expected, predicted = np.array(pairs).T
    return expected, predicted


def _interval(values: Floats, *, is_share: bool) -> dict[str, float]:
    mean = float(values.mean())
    if is_share:
        return asdict(proportion_interval(mean, len(values)))
    half = _NORMAL_QUANTILE * float(values.std()) / math.sqrt(len(values))
    return {"low": max(0.0, mean - half), "high": mean + half}
