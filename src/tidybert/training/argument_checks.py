"""Checks of a run's arguments: each error names the argument, its value and what is expected."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any, get_args

from tidybert.errors import UsageError, param


def check_arguments(
    arguments: Any,
    *,
    above_0: Collection[str] = (),
    at_least_0: Collection[str] = (),
    below_1: Collection[str] = (),
    shares: Collection[str] = (),
    choices: Mapping[str, Sequence[str]] = {},
) -> None:
    """Raise UsageError for a field of another type, or out of the range that its group has.

    None is allowed where the field's type allows it.
    """
    for item in fields(arguments):
        check_type(item.name, getattr(arguments, item.name), item.type)
    check_seed(getattr(arguments, "seed", 0))
    ranges: list[tuple[Collection[str], Callable[[float], bool], str]] = [
        (above_0, lambda value: value > 0, "a number above 0"),
        (at_least_0, lambda value: value >= 0, "a number of at least 0"),
        (below_1, lambda value: 0 <= value < 1, "a number from 0 to below 1"),
        (shares, lambda value: 0 <= value <= 1, "a fraction from 0 to 1"),
    ]
    for names, is_good, expected in ranges:
        for name in names:
            value = getattr(arguments, name)
            if value is not None and not is_good(value):
                raise bad_value(name, value, expected)
    for name, allowed in choices.items():
        value = getattr(arguments, name)
        if value is not None and value not in allowed:
            raise bad_value(name, value, one_of(allowed))


def check_seed(seed: int) -> None:
    """Raise UsageError for a seed that PyTorch's generators do not take."""
    if not 0 <= seed < 2**64:
        raise bad_value("seed", seed, "a whole number from 0 to 2**64 - 1")


def bad_value(name: str, value: object, expected: str) -> UsageError:
    """The error of an argument whose value cannot be used."""
    return UsageError(f"{param(name)} is {value}; expected {expected}")


def one_of(names: Sequence[str]) -> str:
    """Names as a message lists them: auto, float32 or bfloat16."""
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def check_type(name: str, value: object, kind: Any) -> None:
    """Raise UsageError for a value of another type than ``kind``, a type or a union of types."""
    types = get_args(kind) or (kind,)
    # To Python, True is an int; here it is not a number of steps.
    if isinstance(value, bool):
        fits = bool in types
    else:
        fits = isinstance(value, (*types, int) if float in types else types)
    if not fits:
        words = {int: "a whole number", float: "a number", bool: "true or false", str: "a name"}
        raise bad_value(name, repr(value), " or ".join(words.get(each, "none") for each in types))
    if isinstance(value, float) and not math.isfinite(value):
        raise bad_value(name, value, "a finite number")
