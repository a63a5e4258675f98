"""Ctrl-C, SIGTERM and SIGHUP ask a run to stop after its step; a third one stops at once."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from tidybert.errors import TidyBertError
from tidybert.system.signals import STOP_SIGNALS


@dataclass
class StopRequest:
    """``signal_number`` is 0 until a signal comes; ``at`` is when it came, by time.monotonic."""

    signal_number: int = 0
    at: float = 0.0

    def is_due(self, seconds: float | None, needed: float) -> bool:
        """Whether the run must stop now, as ``needed`` seconds before its end after SIGTERM.

        ``seconds``: between SIGTERM and the kill; None, and any other signal, stop at once.
        """
        if seconds is None or self.signal_number != signal.SIGTERM:
            return bool(self.signal_number)
        return time.monotonic() - self.at > seconds - needed


class TrainingInterrupted(TidyBertError):
    """A signal stopped the run after a step; ``exit_status`` is the shell's 128 + the signal.

    ``kept``: after Ctrl-C without a RUN, the best result so far, whose weights the model holds.
    """

    kept: object = None

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.exit_status = 128 + signal_number

    def keeping(self, result: object) -> "TrainingInterrupted":
        """The same error with what it has ``kept``."""
        self.kept = result
        return self


@contextmanager
def stop_requests(
    say: Callable[[int, int], None] = lambda _number, _count: None, *, forwarded: bool = False
) -> Iterator[StopRequest]:
    """Within the block STOP_SIGNALS set the request, in the main thread alone.

    A SIGHUP that the program ignores (nohup) stays ignored.

    Args:
        say: called at once with the signal, and whether it is the first or the second one; after
            the second one the handlers of before are back.
        forwarded: a scheduler and torchrun may both send the first signal, so that a second one
            changes nothing.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    if before.get(getattr(signal, "SIGHUP", None)) is signal.SIG_IGN:
        del before[signal.SIGHUP]

    def receive(number: int, _frame: FrameType | None) -> None:
        is_first = not request.signal_number
        if not (is_first or forwarded):
            restore()
        if is_first or not forwarded:
            if is_first:
                request.signal_number, request.at = number, time.monotonic()
            # The signal may have come while the same stream was being written.
            with contextlib.suppress(RuntimeError):
                say(number, 1 if is_first else 2)

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in before:
        signal.signal(number, receive)
    try:
        yield request
    finally:
        restore()
