"""The warnings of an estimator, once for each fit."""

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from tidybert.errors import TruncationWarning
from tidybert.system.user_warnings import warn_user

_LOST = {
    "truncate": "their end",
    "head-tail": "their middle",
    "windows": "the end of their first text",
}

# Predicting must not change an estimator, so this is beside it: those that have warned.
_WARNED: "WeakKeyDictionary[Any, bool]" = WeakKeyDictionary()


def forget_warnings(estimator: Any) -> None:
    """Let a newly fitted estimator warn again."""
    _WARNED.pop(estimator, None)


def warn_of_truncation(
    estimator: Any, lengths: Sequence[int], total: int, max_seq_length: int, mode: str = "truncate"
) -> None:
    """Warn once of texts of these lengths, in tokens, that ``mode`` of LongTexts has cut."""
    if not lengths or estimator in _WARNED:
        return
    _WARNED[estimator] = True
    warn_user(
        f"{len(lengths)} of {total} examples are longer than max_seq_length={max_seq_length} "
        f"tokens and lose {_LOST[mode]} (the longest has {max(lengths)}); a higher "
        "max_seq_length keeps them whole, at the cost of time (said once for each fit)",
        TruncationWarning,
    )
