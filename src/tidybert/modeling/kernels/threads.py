"""Pieces of work on a CPU, several at once, each on its share of PyTorch's threads."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

import torch

from tidybert.modeling.kernels.freed_memory import keep_freed_memory

T = TypeVar("T")
R = TypeVar("R")


def map_on_threads(work: Callable[[T], R], pieces: Sequence[T]) -> Iterator[R]:
    """``work`` of each of the pieces, in their order, by as many workers as PyTorch has threads.

    Where two threads share one product they wait for each other, and what lies between products
    has one of them idle; two workers with a thread and a batch each do neither.  Python is no
    hindrance, for PyTorch lets go of its lock in every operation.  With fewer pieces than threads
    the workers share the threads out.

    ``work`` must be safe to call from several threads, and enters PyTorch's modes (inference, no
    gradients, autocast) itself, for they are a thread's own.  What it raises is raised here, and
    the pieces that have not begun are given up.
    """
    keep_freed_memory()
    threads = torch.get_num_threads()
    workers = min(threads, len(pieces)) if _each_thread_has_its_own_number() else 1
    if workers < 2:
        yield from map(work, pieces)
        return
    all_begun = Barrier(workers + 1)

    def begin() -> None:
        # A thread that was never asked takes, when it first works, what was set last anywhere.
        torch.get_num_threads()
        torch.set_num_threads(threads // workers)
        all_begun.wait()

    with ThreadPoolExecutor(workers, "tidybert", initializer=begin) as pool:
        results = pool.map(work, pieces)
        all_begun.wait()
        # What was set last is what threads that others start afterwards begin with.
        torch.set_num_threads(threads)
        yield from results


def _each_thread_has_its_own_number() -> bool:
    """Whether ``torch.set_num_threads`` speaks for the thread that calls it alone."""
    return "ATen parallel backend: OpenMP" in torch.__config__.parallel_info()
