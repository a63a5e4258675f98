"""Sides measured in turn over several rounds, and the medians and ratios of what they took."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

UNTIMED_STEPS: Final = 3
"""The first steps of a training, in which libraries choose kernels and fetch memory."""

Samples = Mapping[str, Mapping[str, Sequence[float]]]
"""By side and by quantity, one value a round."""


def in_turn(sides: Sequence[str], number: int) -> Sequence[str]:
    """The order of the sides in a round: the first side begins even rounds and ends odd ones."""
    return sides if number % 2 == 0 else sides[::-1]


def take_rounds(
    sides: Sequence[str],
    rounds: int,
    measure: Callable[[str], tuple[Mapping[str, float], str]],
    report: Callable[[str], None],
) -> Samples:
    """Measure every side once a round.

    Args:
        measure: from a side to its values by quantity, and the rate that ``report`` shows.
    """
    samples: dict[str, dict[str, list[float]]] = {side: {} for side in sides}
    for number in range(rounds):
        for side in in_turn(sides, number):
            values, rate = measure(side)
            for name, value in values.items():
                samples[side].setdefault(name, []).append(value)
            report(f"round {number + 1} of {rounds}: {side} {rate}")
    return samples


def summarize(samples: Samples) -> dict[str, Any]:
    """The samples, their medians by side, and the first side's ratios to the second.

    A ratio is the median over the rounds; one side alone has none.
    """
    first, second = [*samples.values(), {}][:2]
    return {
        "samples": samples,
        "medians": {
            side: {name: statistics.median(values) for name, values in quantities.items()}
            for side, quantities in samples.items()
        },
        "ratios": {
            name: statistics.median(
                mine / other for mine, other in zip(first[name], values, strict=True)
            )
            for name, values in second.items()
        },
    }


def step_times(ends: Sequence[float]) -> list[float]:
    """Seconds from the end of each step to that of the next."""
    return [after - before for before, after in pairwise(ends)]
