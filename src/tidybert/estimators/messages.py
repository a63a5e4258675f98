"""Notes, warnings and errors of the estimators; the row of an example is its position in X."""

import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tidybert.errors import TidyBertError, in_python
from tidybert.training.interruption import TrainingInterrupted

_LOST = {
    "truncate": "their end",
    "head-tail": "their middle",
    "windows": "the end of their first text",
}


@contextmanager
def as_in_python() -> Iterator[None]:
    """Errors name parameters as Python does; Ctrl-C and SIGTERM end more than this fit."""
    try:
        yield
    except TrainingInterrupted as interrupted:
        # cross_val_score takes an Exception for the failure of one fit, and goes on to the next.
        if interrupted.exit_status == 128 + signal.SIGINT:
            raise KeyboardInterrupt(str(interrupted)) from None
        raise SystemExit(interrupted.exit_status) from None
    except TidyBertError as error:
        error.args = (in_python(error.message, rows="position"),)
        raise


def tell(text: str) -> None:
    """Print a note on stderr; the row of an example is its position in X."""
    print(in_python(text, rows="position"), file=sys.stderr)


def warn_of_truncation(
    lengths: Sequence[int], total: int, max_seq_length: int, mode: str = "truncate"
) -> None:
    """Warn of texts of these lengths, in tokens, that ``mode`` (of LongTexts) has cut."""
    if lengths:
        warnings.warn(
            f"{len(lengths)} of {total} examples are longer than max_seq_length={max_seq_length} "
            f"tokens and lose {_LOST[mode]} (the longest has {max(lengths)}); a higher "
            "max_seq_length keeps them whole, at the cost of time",
            stacklevel=4,
        )
