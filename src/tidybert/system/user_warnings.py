"""Python warnings at the line of the program that called tidybert, however deep the call went."""

import sys
import warnings
from types import FrameType
from typing import Final

# Programs of others that call tidybert for the user.
_BETWEEN: Final = ("tidybert", "sklearn", "joblib", "contextlib", "threading", "concurrent")


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the user's line, so that it is shown, and so that a line shows it once.

    The user's line is the first, from here outwards, that is not in tidybert, nor in scikit-learn
    or joblib, which call estimators.
    """
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and _package(frame) in _BETWEEN:
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)


def _package(frame: FrameType) -> str:
    name: str = frame.f_globals.get("__name__", "")
    return name.partition(".")[0]
