"""Metric: what a score says and between which numbers it lies, declared beside its type.

A TypedDict of scores annotates each with a Metric; reports, cards and type checkers read it there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import (
    Annotated,
    Any,
    NotRequired,
    Required,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)


@dataclass(frozen=True)
class Metric:
    """What a score says in a few words, and its lowest and highest value, infinity for none."""

    meaning: str
    least: float = 0.0
    most: float = 1.0


Scores = TypeVar("Scores", bound=type)
_METRICS: dict[str, Metric] = {}


def declared(scores: Scores) -> Scores:
    """For a TypedDict of scores: keeps the metrics that it declares for ``scale_of``."""
    _METRICS.update(metrics_of(scores))
    return scores


def metrics_of(scores: type) -> dict[str, Metric]:
    """By name, what a TypedDict declares."""
    found = {}
    for name, kind in get_type_hints(scores, include_extras=True).items():
        hint: Any = get_args(kind)[0] if get_origin(kind) in (Required, NotRequired) else kind
        if get_origin(hint) is Annotated:
            found[name] = hint.__metadata__[0]
    return found


def meanings_of(scores: type) -> Mapping[str, str]:
    """A few words about each metric that a TypedDict declares, in its order."""
    return {name: each.meaning for name, each in metrics_of(scores).items()}


def scale_of(name: str) -> tuple[float, float]:
    """The lowest and the highest value of a metric; 0 and 1 for one that nothing declares."""
    metric = _METRICS.get(name, Metric(""))
    return metric.least, metric.most
