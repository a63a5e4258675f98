"""Threads that compute: each takes what waits, runs it as one batch, and hands each row back."""

import threading
from collections.abc import Callable
from time import perf_counter

import torch

from tidybert.modeling.kernels.threads import keep_freed_memory
from tidybert.server.work_queue import Taken, WorkQueue


class BatchThreads:
    """Threads with one core each; a thread that is alone computes on all cores.

    Args:
        queue: where work waits.
        num_threads: how many, one a core.
        observe: called after each batch with its seconds.
    """

    def __init__(
        self,
        queue: WorkQueue,
        num_threads: int,
        observe: Callable[[Taken, float], None],
    ) -> None:
        self._queue = queue
        self._num_cores = num_threads
        self._observe = observe
        self._all_begun = threading.Barrier(num_threads + 1)
        self._threads = [
            threading.Thread(target=self._work, name=f"tidybert-{number}", daemon=True)
            for number in range(num_threads)
        ]

    def start(self) -> None:
        """Begin; PyTorch's number of threads in this thread stays as it is."""
        keep_freed_memory()
        before = torch.get_num_threads()
        for each in self._threads:
            each.start()
        self._all_begun.wait()
        # Threads that others start later begin with the number set last.
        torch.set_num_threads(before)

    def join(self) -> None:
        """Wait for the threads; the queue must be closed."""
        for each in self._threads:
            each.join()

    def _work(self) -> None:
        # Without this call a new thread's first operation takes the number set last anywhere.
        torch.get_num_threads()
        torch.set_num_threads(1)
        self._all_begun.wait()
        while (taken := self._queue.take()) is not None:
            begun = perf_counter()
            try:
                torch.set_num_threads(self._num_cores if taken.is_alone else 1)
                _compute(taken)
            finally:
                seconds = perf_counter() - begun
                self._queue.done(taken.tokens, seconds)
            self._observe(taken, seconds)


def _compute(taken: Taken) -> None:
    """Give each piece its rows, or its job the error; a bad input fails no other request."""
    lane = taken.pieces[0].job.lane
    try:
        outputs = lane.run([each.features for each in taken.pieces])
    except Exception as error:
        if len(taken.pieces) == 1:
            taken.pieces[0].job.fail(error)
            return
        for each in taken.pieces:
            _compute(Taken([each], each.tokens, taken.is_alone))
        return
    for each, rows in zip(taken.pieces, outputs, strict=True):
        each.job.give(each.number, rows)
