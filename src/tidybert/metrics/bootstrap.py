"""Intervals around a score: how far it may be off because the examples are only a sample.

The bootstrap is Efron's percentile interval (1979; Efron and Tibshirani 1993, chapter 13) over
whole examples.  It works for any score of a selection of examples.  The refinement BCa is undefined
if every resample scores the same, as for a model that is never wrong.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Scorer = Callable[[npt.NDArray[np.int64]], Mapping[str, float]]
"""The scores by name of the examples with these indices, which may repeat or leave some out."""

LEVEL: Final = 0.95
NUM_RESAMPLES: Final = 1000
MAX_SECONDS: Final = 60.0
# With fewer, two or three resamples decide the ends of a 95 % interval.
FEWEST_RESAMPLES: Final = 100

_NORMAL_QUANTILE: Final = 1.959963984540054  # of 0.975


@dataclass(frozen=True, slots=True)
class Interval:
    """From ``low`` to ``high``."""

    low: float
    high: float


@dataclass(frozen=True)
class Intervals:
    """The interval of each score, and how it was drawn."""

    by_name: dict[str, Interval]
    """Empty if the time was too short for FEWEST_RESAMPLES."""
    level: float
    num_resamples: int
    """The number drawn; fewer than asked for if the time ran out."""
    seed: int
    ran_out: bool = False
    """Whether the time ended before all samples that were asked for."""


def bootstrap(
    scorer: Scorer,
    num_examples: int,
    *,
    level: float = LEVEL,
    num_resamples: int = NUM_RESAMPLES,
    seed: int = 0,
    max_seconds: float = MAX_SECONDS,
) -> Intervals:
    """Percentile intervals of all the scorer's scores, from resamples of ``num_examples``.

    The same seed gives the same intervals, unless ``max_seconds`` ends the drawing first.
    """
    random = np.random.default_rng(seed)
    drawn: list[Mapping[str, float]] = []
    end = time.monotonic() + max_seconds
    while len(drawn) < num_resamples and (not drawn or time.monotonic() < end):
        drawn.append(scorer(random.integers(0, num_examples, num_examples)))
    tail = (1 - level) / 2
    by_name = {}
    if len(drawn) >= min(FEWEST_RESAMPLES, num_resamples):
        for name in drawn[0]:
            low, high = np.quantile([scores[name] for scores in drawn], [tail, 1 - tail])
            by_name[name] = Interval(float(low), float(high))
    return Intervals(by_name, level, len(drawn), seed, ran_out=len(drawn) < num_resamples)


def proportion_interval(share: float, count: int) -> Interval:
    """Wilson's 95 % interval (1927) around a share of ``count`` examples.

    It suits small groups, whose resamples would be too alike: for three right examples out of three
    it still says that the share may be 0.44.
    """
    z2 = _NORMAL_QUANTILE**2
    middle = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = math.sqrt(share * (1 - share) * z2 / count + z2 * z2 / (4 * count * count))
    half /= 1 + z2 / count
    return Interval(max(0.0, middle - half), min(1.0, middle + half))
