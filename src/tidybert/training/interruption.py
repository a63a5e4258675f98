"""Ctrl-C, SIGTERM and SIGHUP ask a run to stop after its step; a third one stops at once."""

import contextlib
import signal
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Final, Self

from tidybert.errors import TidyBertError, in_python, missing_package
from tidybert.system.signals import STOP_SIGNALS
from tidybert.system.terminal import write_note


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
    """A signal stopped the run after a step; ``kept``: without a RUN, the best result so far."""

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
    """Within the block STOP_SIGNALS set the request, in the main thread; SIGHUP may be ignored."""
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


# A step that takes far longer than the steps before it says so, with its place in the data.

TIMES: Final = 100
"""A step is slow when it takes this many times the median of those before it,"""
LEAST_SECONDS: Final = 10.0
"""and at least this long: on a busy machine a step of a millisecond may well take a tenth."""
_KNOWN_STEPS: Final = 5
_MOST_STEPS: Final = 101


@dataclass(frozen=True)
class SlowStep:
    """A step that is not over; where its batch is, in words; the median of the steps before it."""

    step: int
    place: str
    seconds: float
    median: float


class Watchdog:
    """Calls ``say`` once for each slow step, from a thread of its own that lives in the block."""

    def __init__(self, say: Callable[[SlowStep], None], *, every: float = 1.0) -> None:
        self._say = say
        self._every = every
        self._seconds: deque[float] = deque(maxlen=_MOST_STEPS)
        self._running: tuple[int, Callable[[], str], float] | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @contextmanager
    def step(self, number: int, place: Callable[[], str]) -> Iterator[None]:
        """Watch a step; ``place`` is called only if it is slow."""
        begin = time.perf_counter()
        self._running = number, place, begin
        try:
            yield
        finally:
            self._running = None
            self._seconds.append(time.perf_counter() - begin)

    def _watch(self) -> None:
        said = None
        while not self._over.wait(self._every):
            running = self._running
            if running is None or running is said or len(self._seconds) < _KNOWN_STEPS:
                continue
            number, place, begin = running
            seconds = time.perf_counter() - begin
            if seconds < LEAST_SECONDS:
                continue
            # The list is made at once; the loop may add to the deque meanwhile.
            median = statistics.median(list(self._seconds))
            if seconds > TIMES * median:
                said = running
                self._say(SlowStep(number, place(), seconds, median))


# What a program that calls tidybert is told: errors and notes in Python's words, and Ctrl-C.


@contextmanager
def as_in_python(rows: str = "position") -> Iterator[None]:
    """Errors name parameters as Python does; Ctrl-C and SIGTERM end more than this training."""
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
    except ModuleNotFoundError as error:
        raise missing_package(error) or error from None


def tell(text: str, rows: str = "position") -> None:
    """Print a note on stderr."""
    write_note(in_python(text, rows=rows))
