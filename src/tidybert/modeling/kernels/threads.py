"""Runs pieces of work side by side on a CPU, each on its share of PyTorch's threads.

glibc keeps the memory that one piece frees, because the next piece needs as much again.  By default
glibc returns large freed tensors to the system.  The next tensors are then new pages, which the
system clears at first touch: some fifteen thousand in a step of fine-tuning, a tenth of its time.
"""

import ctypes
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Barrier
from typing import Final, TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")

# glibc's <malloc.h>: a parameter's number, and its new value in bytes.
_M_TRIM_THRESHOLD: Final = (-1, 256 * 2**20)
# Threads have heaps of 64 MiB; with this much to spare glibc keeps empty ones.
_M_TOP_PAD: Final = (-2, 64 * 2**20)
# glibc maps each larger block by itself and always returns it; it accepts no larger value.
_M_MMAP_THRESHOLD: Final = (-3, 32 * 2**20)


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


@cache
def keep_freed_memory() -> bool:
    """Have the process keep up to 256 MiB of freed memory, and 64 MiB for each of its threads.

    Returns whether it does.  It changes nothing if the environment sets malloc's parameters, or if
    the C library is not glibc.
    """
    if _is_set_by(os.environ) or not _is_glibc():
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all(mallopt(*each) for each in (_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD))


def _is_set_by(environment: Mapping[str, str]) -> bool:
    return any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in environment)


def _is_glibc() -> bool:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (AttributeError, ValueError, OSError):
        return False
