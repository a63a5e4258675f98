"""Runs pieces of work side by side on a CPU, each on its share of PyTorch's threads."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

import torch

from tidybert.modeling.kernels.freed_memory import keep_freed_memory

T = TypeVar("T")
R = TypeVar("R")


def map_on_threads(work: Callable[[T], R], pieces: Sequence[T]) -> Iterator[R]:
    """``work`` of each piece, in their order, by as many workers as PyTorch has threads.

    Two threads that share a product wait for each other, and one is idle between products; two
    workers with a thread and a batch each never wait.  Python's lock does not hinder them, because
    PyTorch releases it in every operation.  With fewer pieces than threads, each worker has several
    threads.

    ``work`` must be safe to call from several threads.  It enters PyTorch's modes (inference, no
    gradients, autocast) itself, because each thread has its own.  An error of ``work`` is raised
    here, and pieces that have not begun are dropped.
    """
    keep_freed_memory()
    threads = torch.get_num_threads()
    workers = min(threads, len(pieces)) if _each_thread_has_its_own_number() else 1
    if workers < 2:
        yield from map(work, pieces)
        return
    all_begun = Barrier(workers + 1)

    def begin() -> None:
        # Without this call a new thread's first operation takes the number set last anywhere.
        torch.get_num_threads()
        torch.set_num_threads(threads // workers)
        all_begun.wait()

    with ThreadPoolExecutor(workers, "tidybert", initializer=begin) as pool:
        results = pool.map(work, pieces)
        all_begun.wait()
        # Threads that others start later begin with the number set last.
        torch.set_num_threads(threads)
        yield from results


def _each_thread_has_its_own_number() -> bool:
    """Whether ``torch.set_num_threads`` is for the calling thread alone."""
    return "ATen parallel backend: OpenMP" in torch.__config__.parallel_info()
