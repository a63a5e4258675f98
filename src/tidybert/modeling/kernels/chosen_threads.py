"""One thread or all of them for a short pass: whichever took less time a moment ago.

Alone on a machine, all threads are faster.  Beside a busy program each product waits for the thread
whose core is taken, and one thread is faster.  Both give the same bits, which is tried once for
each size of a pass; where they differ, all threads compute it.
"""

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from tidybert.modeling.kernels.threads import num_threads, on_one_thread

# Seconds between two trials of the other way; they grow while it loses.
_PAUSES: Final = (0.5, 8.0)
# A pass that takes so many times the mean calls for a trial.
_SLOW: Final = 1.5
_WEIGHT: Final = 0.25
"""Of the newest pass in the mean."""


@dataclass
class _Size:
    """What is known of passes of one size: the way that is taken, its mean, the next trial."""

    alone: bool
    mean: float
    tried: float
    pause: float = _PAUSES[0]

    def is_trial(self, now: float) -> bool:
        return now >= self.tried + self.pause

    def note_trial(self, seconds: float, now: float) -> None:
        self.tried = now
        if seconds < self.mean:
            self.alone, self.mean, self.pause = not self.alone, seconds, _PAUSES[0]
        else:
            self.pause = min(2 * self.pause, _PAUSES[1])

    def note(self, seconds: float) -> None:
        if seconds > _SLOW * self.mean:
            self.pause = _PAUSES[0]
        self.mean += _WEIGHT * (seconds - self.mean)


class ChosenThreads:
    """Runs passes, each on as many threads as are best for its size now."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        # None: one thread gives other bits.
        self._sizes: dict[Hashable, _Size | None] = {}

    def run(self, size: Hashable, work: Callable[[], Tensor]) -> Tensor:
        """The result of ``work``, a pass that has this size."""
        if num_threads() == 1:
            return work()
        if size not in self._sizes:
            return self._compared(size, work)
        known = self._sizes[size]
        if known is None:
            return work()
        begin = self._clock()
        is_trial = known.is_trial(begin)
        with on_one_thread(known.alone != is_trial):
            found = work()
        seconds = self._clock() - begin
        if is_trial:
            known.note_trial(seconds, begin)
        else:
            known.note(seconds)
        return found

    def _compared(self, size: Hashable, work: Callable[[], Tensor]) -> Tensor:
        """The first pass of a size, both ways; in it oneDNN makes its kernels."""
        with on_one_thread():
            alone = work()
        begin = self._clock()
        shared = work()
        end = self._clock()
        is_equal = torch.equal(alone, shared)
        self._sizes[size] = _Size(False, end - begin, end) if is_equal else None
        return shared
