"""What another value of an argument changes in a run under way, declared beside its default.

    learning_rate: float | None = argument(STEPS, None)

NOTHING may change whenever a run resumes; STEPS, ORDER and MEASURE change from there on, where
``--change`` allows it; MODEL cannot change.
"""

from dataclasses import field, fields
from enum import Flag, auto
from typing import Any, Final

_KEY: Final = "changes"


class Changes(Flag):
    """What another value changes.

    NOTHING: no arithmetic, but for rounding and the draws of dropout.  STEPS: the steps from there
    on.  ORDER: the instances that come next, so a new order of the documents begins.  MEASURE: what
    is measured, so that the best weights are chosen again.  MODEL: what the run trains.
    """

    NOTHING = 0
    STEPS = auto()
    ORDER = auto()
    MEASURE = auto()
    MODEL = auto()


NOTHING: Final = Changes.NOTHING
STEPS: Final = Changes.STEPS
ORDER: Final = Changes.ORDER
MEASURE: Final = Changes.MEASURE
MODEL: Final = Changes.MODEL


def argument(what: Changes, default: Any) -> Any:
    """The field of an argument, with what another value changes."""
    return field(default=default, metadata={_KEY: what})


def changes_of(*groups: Any) -> dict[str, Changes]:
    """By name, what each argument of some dataclasses changes; MODEL where none says it."""
    return {each.name: each.metadata.get(_KEY, MODEL) for group in groups for each in fields(group)}
