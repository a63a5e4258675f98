"""What this process keeps of the memory that it has freed; loads no torch.

glibc keeps what one piece of work frees, because the next piece needs as much again.  By default
glibc returns large freed tensors to the system.  The next tensors are then new pages, which the
system clears at first touch: some fifteen thousand in a step of fine-tuning, a tenth of its time.
"""

import ctypes
import os
from collections.abc import Mapping
from functools import cache
from typing import Final

# glibc's <malloc.h>: a parameter's number, and its new value in bytes.
_M_TRIM_THRESHOLD: Final = (-1, 256 * 2**20)
# Threads have heaps of 64 MiB; with this much to spare glibc keeps empty ones.
_M_TOP_PAD: Final = (-2, 64 * 2**20)
# glibc maps each larger block by itself and always returns it; it accepts no larger value.
_M_MMAP_THRESHOLD: Final = (-3, 32 * 2**20)


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


def return_freed_memory() -> None:
    """Return to the system what the process has freed and keeps, once it needs less than before."""
    if _is_glibc():
        ctypes.CDLL(None).malloc_trim(0)


def _is_set_by(environment: Mapping[str, str]) -> bool:
    return any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in environment)


def _is_glibc() -> bool:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (AttributeError, ValueError, OSError):
        return False
