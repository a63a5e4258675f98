"""What a program that calls tidybert is told: errors and notes in Python's words, and Ctrl-C."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tidybert.errors import TidyBertError, in_python
from tidybert.system.terminal_text import printable
from tidybert.training.interruption import TrainingInterrupted


@contextmanager
def as_in_python(rows: str = "position") -> Iterator[None]:
    """Have errors name parameters as Python does; Ctrl-C and SIGTERM end more than this training.

    ``rows`` names the rows of examples: position, or line for those of a file.
    """
    try:
        yield
    except TrainingInterrupted as interrupted:
        # cross_val_score takes an Exception for the failure of one fit and starts the next.
        if interrupted.exit_status == 128 + signal.SIGINT:
            raise KeyboardInterrupt(str(interrupted)) from None
        raise SystemExit(interrupted.exit_status) from None
    except TidyBertError as error:
        error.args = (in_python(error.message, rows=rows),)
        raise


def tell(text: str, rows: str = "position") -> None:
    """Print a note on stderr."""
    print(printable(in_python(text, rows=rows)), file=sys.stderr)
