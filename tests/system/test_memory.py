"""Freed memory is kept where glibc serves, and nothing is touched elsewhere."""

import os
import subprocess
import sys

import pytest

from tidybert.system.memory import _is_glibc, _is_set_by, keep_freed_memory

# Pages that the system hands out while a thread takes and gives back 16 MiB, five times.
_FAULTS = """
import os, resource, threading, time
import torch
from tidybert.system.memory import keep_freed_memory

def use():
    for _ in range(5):
        parts = [torch.ones(2**18) for _ in range(16)]
        del parts

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def use_in_a_thread():
    others = set(os.listdir("/proc/self/task"))
    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    # Python's part of it has ended; its memory is free for others once the system's has, too.
    while set(os.listdir("/proc/self/task")) - others:
        time.sleep(0.001)

torch.set_num_threads(1)
done = keep_freed_memory()
use_in_a_thread()
before = faults()
use_in_a_thread()
print(done, faults() - before)
"""


def run(**environment: str) -> tuple[bool, int]:
    others = {name: value for name, value in os.environ.items() if not _is_set_by({name: value})}
    done = subprocess.run(
        [sys.executable, "-c", _FAULTS],
        env={**others, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    was_set, faults = done.stdout.split()
    return was_set == "True", int(faults)


@pytest.mark.skipif(not _is_glibc(), reason="glibc alone is told to keep memory")
def test_a_thread_gets_pages_that_were_used_before() -> None:
    was_set, faults = run()
    assert was_set
    # Five times 16 MiB would be 20,480 pages.
    assert faults < 4096


@pytest.mark.skipif(not _is_glibc(), reason="glibc alone is told to keep memory")
def test_settings_of_the_environment_stay() -> None:
    was_set, faults = run(MALLOC_TRIM_THRESHOLD_="0", MALLOC_MMAP_THRESHOLD_="131072")
    assert not was_set
    assert faults > run()[1]


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_name: str) -> str:
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr(os, "confstr", unknown)
    monkeypatch.setattr(os, "environ", {})
    keep_freed_memory.cache_clear()
    assert not keep_freed_memory()
    keep_freed_memory.cache_clear()
