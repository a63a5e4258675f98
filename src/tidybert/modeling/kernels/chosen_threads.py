"""All threads for a short pass, or one while other programs have the cores.

Alone on a machine, all threads are faster.  Beside a busy program each product waits for the thread
whose core is taken, and one thread is faster.  A pass that takes longer than the fastest of its
size shows that.  One and all threads give the same bits, which is tried once for each size; where
they differ, all threads compute it.
"""

import time
from collections.abc import Callable, Hashable
from typing import Final

import torch
from torch import Tensor

from tidybert.modeling.kernels.threads import num_threads, on_one_thread

# Seconds on one thread before all are tried again; they grow while all are slow.
_PAUSES: Final = (0.25, 8.0)
# Seconds on all threads before one is tried.
_TRIAL: Final = 8.0
# So many times the fastest pass is slow; the newest pass in the mean, and the most it counts.
_SLOW: Final = 1.5
_WEIGHT: Final = 0.25
_MOST: Final = 3.0
# The mean after a pause, from which one slow pass leads to the next pause.
_DOUBT: Final = 1.25


class ChosenThreads:
    """Runs passes, each on as many threads as are best now."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        # Seconds of the fastest pass of a size.  None: one thread gives other bits.
        self._fastest: dict[Hashable, float | None] = {}
        # The mean of passes on all threads, in times of the fastest.
        self._slowness = 1.0
        self._pause = _PAUSES[0]
        self._alone_until = 0.0
        self._trial = clock() + _TRIAL

    def run(self, size: Hashable, work: Callable[[], Tensor]) -> Tensor:
        """The result of ``work``, a pass that has this size."""
        if num_threads() == 1:
            return work()
        if size not in self._fastest:
            return self._compared(size, work)
        fastest = self._fastest[size]
        if fastest is None:
            return work()
        begin = self._clock()
        is_trial = begin >= self._trial
        is_alone = is_trial or begin < self._alone_until
        with on_one_thread(is_alone):
            found = work()
        end = self._clock()
        self._fastest[size] = min(fastest, end - begin)
        if is_alone:
            self._trial = end + _TRIAL
        else:
            self._note((end - begin) / fastest, end)
        return found

    def _note(self, slowness: float, now: float) -> None:
        self._slowness += _WEIGHT * (min(slowness, _MOST) - self._slowness)
        if self._slowness > _SLOW:
            self._alone_until = now + self._pause
            self._pause = min(2 * self._pause, _PAUSES[1])
            self._slowness = _DOUBT
        elif self._slowness < _DOUBT:
            self._pause = _PAUSES[0]

    def _compared(self, size: Hashable, work: Callable[[], Tensor]) -> Tensor:
        """The first pass of a size, both ways; in it oneDNN makes its kernels."""
        shared = work()
        begin = self._clock()
        with on_one_thread():
            alone = work()
        seconds = self._clock() - begin
        self._fastest[size] = seconds if torch.equal(alone, shared) else None
        return shared
