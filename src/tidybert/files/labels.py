"""Labels in one spelling, and their order."""

import math
from collections.abc import Iterable
from typing import Final

from tidybert.files.text_examples import TextExample
from tidybert.files.wording import has_lone_surrogate

MAX_EXACT_FLOAT: Final = 2**53  # above it a whole float may mean several integers


def label_names(examples: Iterable[TextExample]) -> list[str]:
    """The distinct labels: numbers first, in numeric order, then the others by code point."""
    found: set[str] = set()
    for each in examples:
        found.update(each.labels or ())
        if each.label is not None:
            found.add(each.label)
    return sorted(found, key=label_order)


def label_order(label: str) -> tuple[float, str]:
    """Sort key that puts "9" before "10", and numbers before words."""
    number = finite_number(label)
    return (math.inf if number is None else number, label)


def finite_number(text: str) -> float | None:
    """The finite number that a text spells, or None; 1_000 is not one."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and "_" not in text else None


def canonical_label(value: object) -> str | None:
    """A label in one spelling for all formats, or None for a value that cannot be one.

    Text loses the white space around it; 1 and 1.0 are both "1", 0.5 is "0.5", booleans "true" and
    "false".  None for an empty text, one with a lone surrogate, null, a number that is not finite,
    a list, an object, bytes.
    """
    if isinstance(value, str):
        return None if has_lone_surrogate(value) else value.strip() or None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        whole = value.is_integer() and abs(value) <= MAX_EXACT_FLOAT
        return str(int(value)) if whole else repr(value)
    return None
