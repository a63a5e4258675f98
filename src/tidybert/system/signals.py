"""Ctrl-C, SIGTERM and SIGHUP end a command with a message and its clean-up, never a traceback.

The program installs these handlers before it loads anything else, so this file imports little.
A training replaces them while its steps run (training/interruption.py).
"""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

STOP_SIGNALS: Final = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""The signals that ask a program to end; Windows has no SIGHUP."""


class Interrupted(KeyboardInterrupt):
    """A signal ended the command; ``exit_status`` is the shell's 128 + the signal."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_name(signal_number))
        self.exit_status = 128 + signal_number


def signal_name(number: int) -> str:
    """A signal as a user knows it."""
    return "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name


class CommandSignals:
    """The handlers of a command, and what they have received.

    interrupted: the error that the first signal raised; None before.  is_working: whether the
    command has begun; before that a signal ends the program at once, because nothing is open yet.
    """

    def __init__(self) -> None:
        self.interrupted: Interrupted | None = None
        self.is_working = False
        self._count = 0

    def install(self) -> None:
        """Handle the stop signals, but those that the program was started to ignore (nohup)."""
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self.receive)
        sys.unraisablehook = self._end_where_nobody_catches

    def receive(self, number: int, _frame: FrameType | None) -> None:
        """The first signal raises Interrupted, the second one explains, a third ends at once."""
        self._count += 1
        if not self.is_working:
            _say("interrupted")
            os._exit(128 + number)
        if self._count == 1:
            self.interrupted = Interrupted(number)
            _say(f"interrupted by {signal_name(number)}: unfinished files are put in order")
            raise self.interrupted
        if self._count == 2:
            _say("still putting files in order; a third signal ends at once and leaves them")
            return
        os._exit(128 + number)

    def _end_where_nobody_catches(self, unraisable: Any) -> None:
        # In a destructor or a callback from C Python would print the error and work on.
        if isinstance(unraisable.exc_value, Interrupted):
            os._exit(unraisable.exc_value.exit_status)
        sys.__unraisablehook__(unraisable)


@contextlib.contextmanager
def uninterrupted_children() -> Iterator[None]:
    """Processes that the block starts never receive Ctrl-C or SIGHUP; this one ends them.

    A terminal sends both to every process, and one that still loads would show a traceback.  This
    process receives them when the block ends.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _say(line: str) -> None:
    # Python's own stderr may be in the midst of a write.
    with contextlib.suppress(OSError):
        os.write(2, f"{line}\n".encode())


command_signals: Final = CommandSignals()
"""Those of this process."""
