"""How far a model's probabilities can be trusted: temperature, calibration error, coverage.

Also the score from which a model gives a label: below it a person does the rest.

Temperature and expected calibration error follow Guo et al. 2017 (On Calibration of Modern Neural
Networks, sections 2 and 4.2), coverage against risk and that score Geifman and El-Yaniv 2017
(Selective Classification for Deep Neural Networks, section 2), the Brier score Brier 1950.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tidybert.metrics.text_scores import Floats, check_one_length

Ints = npt.NDArray[np.int64]

LOWEST_TEMPERATURE: Final = 0.05
HIGHEST_TEMPERATURE: Final = 20.0
PRIOR: Final = 20.0
"""Examples at a temperature of 1 that every fit adds; docs/trust.md shows what they change."""
NUM_BINS: Final = 15

_MAX_ITERATIONS: Final = 100
_TOLERANCE: Final = 1e-10


def fit_temperature(
    logits: Sequence[npt.ArrayLike] | npt.NDArray[Any],
    labels: npt.ArrayLike,
    *,
    prior: float = PRIOR,
) -> float:
    """The temperature T for which softmax(logits / T) has the lowest log-loss, drawn towards 1.

    Few examples say little about T.  So ``prior`` further examples count whose labels are as
    probable as T = 1 makes them; 0 leaves them out.  T is 1 if all logits are equal, and, without a
    prior, if no candidate scores above the label in any example: the log-loss falls with T then.

    logits: (N, C), or N arrays (C_i,) of the candidates of each; a single logit s for two classes
    is (0, s).  labels: (N,) indices.  Raises ValueError for none, other shapes, infinite ones.
    """
    rows = [np.asarray(each, dtype=np.float64) for each in logits]
    given = np.asarray(labels, dtype=np.int64)
    if given.shape != (len(rows),) or any(row.ndim != 1 for row in rows):
        raise ValueError(
            f"{len(rows)} rows of logits and labels of shape {given.shape} were given; (N, C) or N "
            "arrays of one dimension, and (N,), are expected"
        )
    sizes = np.array([len(row) for row in rows], dtype=np.int64)
    flat = np.concatenate([np.empty(0), *rows])
    if not len(sizes):
        raise ValueError("no example was given; a temperature needs one at least")
    if not np.isfinite(flat).all():
        raise ValueError("logits must be finite")
    if (given < 0).any() or (given >= sizes).any():
        raise ValueError("a label is not an index into its row of logits")
    starts = np.cumsum(sizes) - sizes
    flat = flat - np.repeat(np.maximum.reduceat(flat, starts), sizes)
    right = flat[starts + given]
    if not flat.any() or not (prior or right.any()):
        return 1.0

    # The log-loss is convex in b = 1 / T (a sum of log-sum-exps), so its slope has one root.
    def moments(b: float) -> tuple[Floats, Floats]:
        weights = np.exp(b * flat)
        total = np.add.reduceat(weights, starts)
        mean = np.add.reduceat(weights * flat, starts) / total
        square = np.add.reduceat(weights * flat * flat, starts) / total
        return mean, square - mean * mean

    share = prior / len(sizes)
    # The examples of the prior are spread over the given ones, and have soft labels.
    wanted = right + share * moments(1.0)[0]

    def slope_and_curvature(b: float) -> tuple[float, float]:
        mean, variance = moments(b)
        return float(((1 + share) * mean - wanted).mean()), float((1 + share) * variance.mean())

    low, high = 1 / HIGHEST_TEMPERATURE, 1 / LOWEST_TEMPERATURE
    if slope_and_curvature(low)[0] >= 0:
        return HIGHEST_TEMPERATURE
    if slope_and_curvature(high)[0] <= 0:
        return LOWEST_TEMPERATURE
    b = 1.0
    for _ in range(_MAX_ITERATIONS):
        slope, curvature = slope_and_curvature(b)
        low, high = (low, b) if slope > 0 else (b, high)
        # Newton's step may leave the bracket if the loss is nearly flat; halving never does.
        newton = b - slope / curvature if curvature > 0 else high
        following = newton if low < newton < high else (low + high) / 2
        if abs(following - b) <= _TOLERANCE * b:
            break
        b = following
    return 1 / b


def temperature_note(temperature: float) -> str | None:
    """A warning about a temperature at a bound, or None."""
    if temperature <= LOWEST_TEMPERATURE:
        return (
            f"the temperature is at its lower bound {LOWEST_TEMPERATURE}: the scores of right "
            "answers are too close to the others; train longer"
        )
    if temperature >= HIGHEST_TEMPERATURE:
        return (
            f"the temperature is at its upper bound {HIGHEST_TEMPERATURE}: the scores say next to "
            "nothing about the labels"
        )
    return None


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """The examples whose confidence is above ``lower`` and at most ``upper``."""

    lower: float
    upper: float
    count: int
    confidence: float
    """Their mean confidence."""
    accuracy: float
    """The share of right answers among them."""


def reliability_bins(
    confidence: npt.ArrayLike,
    correct: npt.ArrayLike,
    num_bins: int = NUM_BINS,
    *,
    equal_mass: bool = False,
) -> list[ReliabilityBin]:
    """The calibration curve: examples by confidence, without empty bins; of equal width or mass.

    confidence: (N,) probabilities of the answers given.  correct: (N,) from 0 to 1.
    """
    sure, right = _checked(confidence, correct)
    shares = np.linspace(0, 1, num_bins + 1)
    edges = np.percentile(sure, 100 * shares) if equal_mass and len(sure) else shares
    places = np.searchsorted(edges[1:-1], sure)
    counts = np.bincount(places, minlength=num_bins)
    sums = np.bincount(places, sure, num_bins), np.bincount(places, right, num_bins)
    return [
        ReliabilityBin(
            lower=float(edges[at]),
            upper=float(edges[at + 1]),
            count=int(counts[at]),
            confidence=float(sums[0][at] / counts[at]),
            accuracy=float(sums[1][at] / counts[at]),
        )
        for at in np.flatnonzero(counts)
    ]


def expected_calibration_error(bins: Sequence[ReliabilityBin]) -> float:
    """The mean distance between accuracy and confidence over the bins, weighted by examples."""
    total = sum(each.count for each in bins)
    return sum(each.count * abs(each.accuracy - each.confidence) for each in bins) / total


def brier_score(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """The mean squared distance of the probabilities from the truth, 0 to 2.

    probabilities: (N, C).  labels: (N,) indices.  As in Brier's paper it sums over all classes: for
    two classes it is twice the score of one of them.
    """
    p, given = np.asarray(probabilities, dtype=np.float64), np.asarray(labels, dtype=np.int64)
    chosen = p[np.arange(len(p)), given]
    return float((np.square(p).sum(axis=1) - 2 * chosen + 1).mean())


@dataclass(frozen=True, slots=True)
class RiskCoverage:
    """The gain from answering only if the model is sure enough.

    threshold, coverage, risk: (K,), one place for each distinct confidence, from high to low.  A
    model that answers only with at least this confidence answers this share of the examples, and
    this share of its answers is wrong.  aurc: the area under risk over coverage, which is the mean
    risk over all numbers of answered examples; 0 is perfect.
    """

    threshold: Floats
    coverage: Floats
    risk: Floats
    aurc: float


def risk_coverage(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> RiskCoverage:
    """Risk against coverage of (N,) confidences and correctness; equal ones answer together."""
    sure, right = _checked(confidence, correct)
    threshold, places, counts = np.unique(-sure, return_inverse=True, return_counts=True)
    wrong = np.bincount(places, 1 - right) / counts
    answered = np.arange(1, len(sure) + 1)
    risks = np.cumsum(np.repeat(wrong, counts)) / answered
    last = np.cumsum(counts)
    return RiskCoverage(-threshold, last / len(sure), risks[last - 1], float(risks.mean()))


def _checked(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> tuple[Floats, Floats]:
    sure = np.asarray(confidence, dtype=np.float64)
    right = np.asarray(correct, dtype=np.float64)
    check_one_length(confidence=sure, correct=right)
    for name, values in (("confidence", sure), ("correct", right)):
        if not ((values >= 0) & (values <= 1)).all():
            raise ValueError(f"{name} must lie from 0 to 1")
    return sure, right


_FEWEST_FOR_COVERAGE: Final = 20
_Z2: Final = 1.2816**2
"""The normal quantile of 0.9, squared: an accuracy is reached nine times in ten."""
_RARE: Final = 0.05
ANSWERS_NONE: Final = 1.0
"""The score where no lower one is accurate enough."""


def fewest_for(min_coverage: float | None, min_accuracy: float | None) -> int:
    """Examples that choosing a score needs; for an accuracy, right answers that would show it."""
    if min_accuracy is not None:
        return math.ceil(_Z2 * min_accuracy / (1 - min_accuracy))
    return 0 if min_coverage is None else _FEWEST_FOR_COVERAGE


def fewest_right(count: int, share: float) -> int:
    """How many of ``count`` must be right to show, 19 times in 20, that this share of all is.

    The bound is exact (Clopper and Pearson 1934); count + 1 where not even all would show it.
    """
    right = np.arange(1, count + 1)
    # The binomial coefficients, from one to the next.
    chances = np.log((count - right + 1) / right) + math.log(share / (1 - share))
    logs = np.cumsum(np.append(count * math.log(1 - share), chances))
    at_least = np.cumsum(np.exp(logs)[::-1])[::-1]
    shown = np.flatnonzero(at_least <= _RARE)
    return int(shown[0]) if len(shown) else count + 1


def fewest_to_show(share: float) -> int:
    """How many show that a share is right, where all of them are."""
    return math.ceil(math.log(_RARE) / math.log(share))


def score_for(
    confidence: npt.ArrayLike,
    correct: npt.ArrayLike,
    min_coverage: float | None = None,
    min_accuracy: float | None = None,
) -> float:
    """The score from which answers reach a coverage or an accuracy on (N,) examples.

    By coverage it is the highest that reaches it.  By accuracy it is the lowest from which the low
    end of Wilson's interval (1927) around the share of right answers reaches it, at 90% on this
    side; ANSWERS_NONE where none does.
    """
    curve = risk_coverage(confidence, correct)
    if min_coverage is not None:
        return float(curve.threshold[np.searchsorted(curve.coverage, min_coverage - 1e-9)])
    assert min_accuracy is not None
    right, share = 1 - curve.risk, _Z2 / (curve.coverage * np.size(confidence))
    low = (right + share / 2 - np.sqrt(share * (right * curve.risk + share / 4))) / (1 + share)
    reached = np.flatnonzero(low >= min_accuracy)
    return float(curve.threshold[reached[-1]]) if len(reached) else ANSWERS_NONE
