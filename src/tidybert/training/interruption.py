"""Ctrl-C and SIGTERM ask a run to stop after the step at hand; a second one stops at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from tidybert.errors import TidyBertError


@dataclass
class StopRequest:
    """``signal_number`` is 0 until a signal comes."""

    signal_number: int = 0


class TrainingInterrupted(TidyBertError):
    """A signal stopped the run after a step; ``exit_status`` is the shell's 128 + the signal."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.exit_status = 128 + signal_number


@contextmanager
def stop_requests(*, forwarded: bool = False) -> Iterator[StopRequest]:
    """Within the block SIGINT and SIGTERM set the request, in the main thread alone.

    Where signals are ``forwarded``, a second one changes nothing: a scheduler and torchrun may both
    have sent the first.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in signals}

    def note(number: int, _frame: FrameType | None) -> None:
        request.signal_number = number
        if forwarded:
            return
        for each, handler in before.items():
            signal.signal(each, handler)

    for number in signals:
        signal.signal(number, note)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
