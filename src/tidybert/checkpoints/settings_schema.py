"""The settings in tidybert.json, and the values that each can have.

The tasks write them and read them back with their own defaults; a person may have edited them.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tidybert.errors import ConfigError
from tidybert.storage.json_objects import plain_json

# type() and not isinstance: to Python, true is an int.
_MOST: Final = 1_000_000


def _is_number(value: Any, low: float, high: float) -> bool:
    return type(value) in (int, float) and low <= value <= high


def _is_count(value: Any) -> bool:
    return type(value) is int and 1 <= value <= _MOST


def _are_thresholds(value: Any) -> bool:
    return isinstance(value, dict) and all(_is_number(each, 0, 1) for each in value.values())


_COUNT: Final = (_is_count, f"a whole number from 1 to {_MOST:,}")

SETTINGS: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "temperature": (lambda value: _is_number(value, 1e-3, 1e3), "a number from 0.001 to 1000"),
    "thresholds": (_are_thresholds, "an object from labels to numbers from 0 to 1"),
    "long": (lambda value: isinstance(value, str), "a string"),
    "doc_stride": (
        lambda value: value is None or _is_count(value),
        f"null or a whole number from 1 to {_MOST:,}",
    ),
    "no_answers": (lambda value: type(value) is bool, "true or false"),
    "max_query_length": _COUNT,
    "max_answer_length": _COUNT,
    "n_best_size": _COUNT,
    "null_score_diff_threshold": (
        lambda value: value is None or _is_number(value, -_MOST, _MOST),
        f"null or a number from {-_MOST:,} to {_MOST:,}",
    ),
    "objective": (lambda value: isinstance(value, str), "a string"),
}
"""By name: whether a value will do, and what is expected.  A task may add names of its own."""


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raise ConfigError, which names the setting, for a value that it cannot have."""
    for name, value in settings.items():
        is_good, expected = SETTINGS.get(name, (lambda _: True, ""))
        plain = plain_json(value)
        if not is_good(plain):
            raise ConfigError(f"settings: {name} is {plain!r:.80}; {expected} is needed")
