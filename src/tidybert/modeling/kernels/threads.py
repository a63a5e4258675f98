"""Runs pieces of work side by side on a CPU, each on its share of PyTorch's threads."""

import os
import time
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from threading import Barrier, Lock
from typing import Final, TypeVar

import torch
from torch import Tensor

from tidybert.system.cores import keep_freed_memory

T = TypeVar("T")
R = TypeVar("R")


def map_on_threads(work: Callable[[T], R], pieces: Sequence[T]) -> Iterator[R]:
    """``work`` of each piece, in their order, by as many workers as PyTorch has threads.

    Two threads that share a product wait for each other, and one is idle between products; two
    workers with a thread and a batch each never wait.  PyTorch releases Python's lock in every
    operation.  With fewer pieces than threads, each worker has several threads.

    ``work`` must be safe to call from several threads.  It enters PyTorch's modes (inference, no
    gradients, autocast) itself, because each thread has its own.  An error of ``work`` is raised
    here, and pieces that have not begun are dropped.
    """
    keep_freed_memory()
    _process.begin_work()
    threads = num_threads()
    workers = min(threads, len(pieces)) if _each_thread_has_its_own_number() else 1
    if workers < 2:
        yield from map(work, pieces)
        return
    futures = [_process.pool(workers, threads).submit(work, piece) for piece in pieces]
    try:
        for future in futures:
            yield future.result()
    finally:
        # Workers take the first ones meanwhile.
        for future in reversed(futures):
            future.cancel()
        wait(futures)


def num_threads() -> int:
    """PyTorch's threads for an operation of the calling thread."""
    with _process.lock:
        return torch.get_num_threads()


@contextmanager
def on_one_thread(wanted: bool = True) -> Iterator[None]:
    """Compute in the block on the calling thread alone, if ``wanted``."""
    before = num_threads() if wanted and _each_thread_has_its_own_number() else 1
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _Process:
    """The workers of this process, which are begun once.

    ``torch.set_num_threads`` is for the calling thread, but a new thread's first operation takes
    the number that was set last anywhere.  So no thread may ask while workers begin.
    """

    def __init__(self) -> None:
        self.lock = Lock()
        self.is_forked = self.has_worked = False
        self._pools: dict[tuple[int, int], ThreadPoolExecutor] = {}

    def begin_work(self) -> None:
        """Note that threads may exist from here on; warn once in a process that has lost them."""
        if self.is_forked:
            self.is_forked = False
            warnings.warn(
                "this process was forked from one that had computed on several threads, which a "
                "fork does not copy: it computes on one thread. Begin processes with "
                'multiprocessing.get_context("spawn")',
                RuntimeWarning,
                stacklevel=2,
            )
        self.has_worked = True

    def pool(self, workers: int, threads: int) -> ThreadPoolExecutor:
        """The workers, each with its share of the threads."""
        with self.lock:
            if (workers, threads) not in self._pools:
                self._pools[workers, threads] = self._begin(workers, threads)
            return self._pools[workers, threads]

    def _begin(self, workers: int, threads: int) -> ThreadPoolExecutor:
        all_begun = Barrier(workers + 1)

        def begin() -> None:
            # Without this call the first operation would take the number that was set last.
            torch.get_num_threads()
            torch.set_num_threads(threads // workers)
            all_begun.wait()

        pool = ThreadPoolExecutor(workers, "tidybert", initializer=begin)
        for _ in range(workers):
            pool.submit(int)
        all_begun.wait()
        torch.set_num_threads(threads)
        return pool

    def after_fork(self) -> None:
        """In the new process: OpenMP would wait for ever for threads that are not there."""
        had_threads = self.has_worked and torch.get_num_threads() > 1
        self.__init__()  # type: ignore[misc]
        if had_threads:
            self.is_forked = True
            torch.set_num_threads(1)


_process: Final = _Process()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_process.after_fork)


@cache
def _each_thread_has_its_own_number() -> bool:
    """Whether ``torch.set_num_threads`` is for the calling thread alone."""
    return "ATen parallel backend: OpenMP" in torch.__config__.parallel_info()


# All threads for a short pass, or one while other programs have the cores.
#
# Alone on a machine, all threads are faster.  Beside a busy program each product waits for the
# thread whose core is taken, and one thread is faster.  A pass that takes longer than the fastest
# of its size shows that.  One and all threads give the same bits, which is tried once for each
# size; where they differ, all threads compute it.

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
