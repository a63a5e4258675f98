"""How many cores this process may use, how its threads wait, and what memory it keeps.

Loads no torch.

OpenMP's threads spin while they wait for each other, which takes the core of any other process.
PyTorch's builds link libgomp on Linux and libomp on macOS; both read OMP_WAIT_POLICY once, when
PyTorch loads, and ``passive`` puts waiting threads to sleep.  libgomp first spins as often as
GOMP_SPINCOUNT says: for a tenth of a millisecond here, as most waits between two products are
shorter.

glibc keeps what one piece of work frees, because the next piece needs as much again.  By default
glibc returns large freed tensors to the system.  The next tensors are then new pages, which the
system clears at first touch: some fifteen thousand in a step of fine-tuning, a tenth of its time.
"""

import ctypes
import os
import platform
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

WAITING: Final = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "6000"}
"""In the environment: how threads wait."""
_CGROUP: Final = Path("/sys/fs/cgroup")
_OWN_CGROUPS: Final = Path("/proc/self/cgroup")


def prepare_threads() -> None:
    """Have PyTorch's threads soon sleep while they wait, and keep to a container's CPU quota.

    It sets environment variables, so it does nothing once PyTorch is loaded.  It never replaces
    OMP_WAIT_POLICY or OMP_NUM_THREADS of the user.
    """
    if "torch" in sys.modules:
        return
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.update({**WAITING, **os.environ})
    if (cores := available_cores()) < _own_cores():
        # Without a quota the choice is PyTorch's: it leaves out hyperthreads.
        os.environ.setdefault("OMP_NUM_THREADS", str(cores))


def prepare_short_answers() -> None:
    """Have oneDNN keep the kernels of 128 numbers of rows, for requests of any length.

    By default it keeps 80.  It does nothing once PyTorch is loaded, and replaces no setting of the
    user.
    """
    if "torch" not in sys.modules:
        for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
            os.environ.setdefault(name, "128")


def use_threads(number: int) -> None:
    """Compute with this many threads, here and in processes that begin later."""
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(number)
    use_threads_here(number)


def use_threads_here(number: int) -> None:
    """Have PyTorch, where it is loaded, compute with this many threads in the calling thread."""
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(number)


def num_threads() -> int:
    """The threads of one pass: PyTorch's where it is loaded, else as many as it would take."""
    if (torch := sys.modules.get("torch")) is not None:
        return int(torch.get_num_threads())
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdecimal() and int(given) else available_cores()


def available_cores() -> int:
    """The cores that this process may use: its affinity, or its cgroup's CPU quota if lower."""
    quota = _cgroup_quota(_CGROUP, _OWN_CGROUPS)
    return _own_cores() if quota is None else max(1, min(_own_cores(), int(quota)))


def load_note() -> str | None:
    """A note for the user where more processes want to run than there are cores; else None."""
    cores = available_cores()
    try:
        load = os.getloadavg()[0]
    except (AttributeError, OSError):  # Windows has none
        return None
    # Half a process more is what a terminal and a browser take.
    if load <= cores + 0.5:
        return None
    return (
        f"the machine is busy: a load of {load:.1f} in the last minute, and "
        f"{cores} core{'s' * (cores > 1)} for this process; the work takes longer"
    )


def _own_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cgroup_quota(mount: Path, own: Path) -> float | None:
    """The cores of the strictest CPU quota above this process, of cgroup v2 or v1; None: none."""
    quotas = []
    for line in _text(own).splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            root = mount
        elif "cpu" in controllers.split(","):
            root = mount / controllers if (mount / controllers).is_dir() else mount / "cpu"
        else:
            continue
        # Inside a container the path may be the host's: then only the mount's root is there.
        inner = root / path.strip("/")
        for folder in (inner, *inner.parents):
            quotas += _quotas_in(folder)
            if folder == root:
                break
    return min(quotas, default=None)


def _quotas_in(folder: Path) -> list[float]:
    """The quota of one cgroup, in cores, as a list of none or one."""
    found = _text(folder / "cpu.max").split()  # v2: "200000 100000", or "max 100000"
    if not found:
        found = [_text(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    try:
        quota, period = map(int, found)
    except ValueError:
        return []
    return [quota / period] if quota > 0 and period > 0 else []


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


# This machine's processor, and the versions of what runs on it; loads no torch.


def machine() -> dict[str, Any]:
    """The processor's name and how many cores this process may use."""
    name = platform.processor() or platform.machine()
    described = Path("/proc/cpuinfo")
    if described.exists():
        for line in described.read_text().splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    return {"cpu": name, "cores": available_cores()}


def versions(*packages: str) -> dict[str, str | None]:
    """The versions of Python and of packages; None for one that is not installed."""
    # It takes 18 ms to load.
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


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
