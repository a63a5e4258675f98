"""A step that takes far longer than the steps before it says so, with its place in the data."""

import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Self

TIMES: Final = 100
"""A step is slow when it takes this many times the median of those before it,"""
LEAST_SECONDS: Final = 10.0
"""and at least this long: on a busy machine a step of a millisecond may well take a tenth."""
_KNOWN_STEPS: Final = 5
_MOST_STEPS: Final = 101


@dataclass(frozen=True)
class SlowStep:
    """A step that is not over yet.

    place: where its batch is in the data, in words.  seconds: what it has taken so far.
    median: seconds of the steps before it.
    """

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
