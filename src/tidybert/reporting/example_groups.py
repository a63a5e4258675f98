"""Examples in groups: by their length in tokens, and scores by how far off they are."""

import math
from dataclasses import asdict
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tidybert.metrics.bootstrap import proportion_interval
from tidybert.reporting.evaluation import Evaluation

MAX_GROUPS: Final = 6
FEWEST_IN_GROUP: Final = 20
MAX_POINTS: Final = 2000
NUM_RESIDUAL_BINS: Final = 21

_NORMAL_QUANTILE: Final = 1.96

Floats = npt.NDArray[np.float64]


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
    counts, edges = np.histogram(residuals, _residual_edges(residuals))
    places = np.unique(np.linspace(0, len(expected) - 1, MAX_POINTS).round().astype(int))
    return {
        "mean_residual": float(residuals.mean()),
        "mean_absolute_error": float(np.abs(residuals).mean()),
        "root_mean_square_error": float(np.sqrt(np.square(residuals).mean())),
        "points": [[float(expected[at]), float(predicted[at])] for at in places],
        "residuals": {"edges": edges.tolist(), "counts": counts.tolist()},
    }


def _scores(evaluation: Evaluation) -> tuple[Floats, Floats]:
    pairs = [(float(one.expected), float(one.predicted)) for one in evaluation.judgements]
    expected, predicted = np.array(pairs).T
    return expected, predicted


def _residual_edges(residuals: Floats) -> Floats:
    """Bins on both sides of 0, so that none holds scores that are too high and too low."""
    largest = float(np.abs(residuals).max()) or 1.0
    return np.linspace(-largest, largest, NUM_RESIDUAL_BINS + 1)


def _interval(values: Floats, *, is_share: bool) -> dict[str, float]:
    mean = float(values.mean())
    if is_share:
        return asdict(proportion_interval(mean, len(values)))
    half = _NORMAL_QUANTILE * float(values.std()) / math.sqrt(len(values))
    return {"low": max(0.0, mean - half), "high": mean + half}
