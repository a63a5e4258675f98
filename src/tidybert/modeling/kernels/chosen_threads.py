"""One thread or all of them for a short pass: whichever took less time a moment ago.

Alone on a machine, all threads are faster.  Beside a busy program each product waits for the thread
whose core is taken, and one thread is faster.  Both give the same bits, which is tried once for
each size of a pass; where they differ, all threads compute it.
"""

import math
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from tidybert.modeling.kernels.threads import num_threads, on_one_thread

# Seconds between two trials of the other way; they grow while it loses.
_PAUSES: Final = (0.5, 8.0)
# A mean that has grown so much since the last trial calls for another one.
_GROWN: Final = 1.5
# The newest pass in the mean, and the most that it counts: one that was held up says little.
_WEIGHT: Final = 0.1
_MOST: Final = 2.0


@dataclass
class _Size:
    """What is known of passes of one size.

    ``alone`` is the way that is taken, ``mean`` its seconds now and ``before`` at the last trial,
    which was at ``tried``.
    """

    tried: float
    alone: bool = False
    mean: float = math.inf
    before: float = math.inf
    pause: float = _PAUSES[0]

    def is_trial(self, now: float) -> bool:
        return now >= self.tried + self.pause and self.mean < math.inf

    def note_trial(self, seconds: float, now: float) -> None:
        self.tried = now
        if seconds < self.mean:
            self.alone, self.mean, self.pause = not self.alone, seconds, _PAUSES[0]
        else:
            self.pause = min(2 * self.pause, _PAUSES[1])
        self.before = self.mean

    def note(self, seconds: float) -> None:
        if self.mean == math.inf:
            self.mean = self.before = seconds
        self.mean += _WEIGHT * (min(seconds, _MOST * self.mean) - self.mean)
        if self.mean > _GROWN * self.before:
            self.pause = _PAUSES[0]


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
        shared = work()
        is_equal = torch.equal(alone, shared)
        self._sizes[size] = _Size(self._clock()) if is_equal else None
        return shared
