"""How far to trust confidence: calibration, and the accuracy of the surest answers alone."""

from dataclasses import asdict
from typing import Any, Final

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

MAX_POINTS: Final = 200
_SHARES: Final = (1.0, 0.95, 0.9, 0.8, 0.7, 0.5)

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
    """Accuracy of the surest answers, for each share of them; None without confidence."""
    confidence, correct = _answered(evaluation)
    if not len(confidence):
        return None
    curve = risk_coverage(confidence, correct)

    def at(place: int) -> dict[str, float]:
        return {
            "threshold": float(curve.threshold[place]),
            "coverage": float(curve.coverage[place]),
            "accuracy": float(1 - curve.risk[place]),
        }

    places = np.unique(np.linspace(0, len(curve.risk) - 1, MAX_POINTS).round().astype(int))
    # The highest threshold that still answers each share; several shares may have the same one.
    firsts = np.unique(np.searchsorted(curve.coverage, np.array(_SHARES) - 1e-9))[::-1]
    return {
        "num_examples": len(confidence),
        "aurc": curve.aurc,
        "points": [at(place) for place in places.tolist()],
        "choices": [at(place) for place in firsts.tolist()],
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
