"""The score from which a model gives a label: below it a person does the rest.

Selective classification: Geifman and El-Yaniv 2017, section 2.
"""

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from tidybert.metrics.calibration import risk_coverage

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
