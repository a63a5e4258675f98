"""How messages name a value, its type, the keys of an object and a count."""

from collections.abc import Iterable
from itertools import islice
from typing import Final

_LONE_SURROGATE: Final = r"a lone surrogate (half of a \ud83d\ude00 pair)"


def text_problem(name: str, value: object) -> str | None:
    """Why the value of that name is not a usable text; None where it is."""
    if not isinstance(value, str):
        return f"{name!r} is {json_type(value)} where a text is expected"
    return f"{name!r} holds {_LONE_SURROGATE}" if has_lone_surrogate(value) else None


def has_lone_surrogate(text: str) -> bool:
    """JSON can spell one, and UTF-8 cannot."""
    return not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)


def json_type(value: object) -> str:
    """The type of a value in the words of JSON."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"a text with {_LONE_SURROGATE}" if has_lone_surrogate(value) else "a text"
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    return f"a value of type {type(value).__name__}"


def count_of(number: int, noun: str) -> str:
    """A count with its noun: 1 row, 2,000 rows."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def keys_seen(record: Iterable[str]) -> str:
    """The first keys of an object."""
    return ", ".join(repr(name[:40]) for name in islice(record, 20)) or "none at all"
