"""Cores by affinity and by cgroup quota, threads that sleep, and a busy machine."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidybert.system import cores
from tidybert.system.cores import _is_glibc, _is_set_by, keep_freed_memory


@pytest.mark.parametrize(
    ("own", "files", "quota"),
    [
        ("0::/\n", {"cpu.max": "200000 100000\n"}, 2.0),
        ("0::/\n", {"cpu.max": "max 100000\n"}, None),
        # The strictest of the groups above this one counts.
        ("0::/a/b\n", {"a/cpu.max": "150000 100000\n", "a/b/cpu.max": "max 100000\n"}, 1.5),
        # A container without a namespace of its own sees the host's path.
        ("0::/docker/1f\n", {"cpu.max": "50000 100000\n"}, 0.5),
        (
            "3:cpuset:/\n2:cpu,cpuacct:/x\n0::/\n",
            {"cpu,cpuacct/x/cpu.cfs_quota_us": "300000", "cpu,cpuacct/x/cpu.cfs_period_us": "1000"},
            300.0,
        ),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ("", {}, None),
    ],
)
def test_a_quota_is_read_from_both_kinds_of_cgroups(
    own: str, files: dict[str, str], quota: float | None, tmp_path: Path
) -> None:
    for name, text in files.items():
        path = tmp_path / "mount" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "own").write_text(own)

    assert cores._cgroup_quota(tmp_path / "mount", tmp_path / "own") == quota


@pytest.mark.parametrize(("quota", "expected"), [(None, 8), (2.5, 2), (0.2, 1), (64.0, 8)])
def test_cores_are_whole_and_at_least_one(
    quota: float | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "_own_cores", lambda: 8)
    monkeypatch.setattr(cores, "_cgroup_quota", lambda *_: quota)

    assert cores.available_cores() == expected


def environment_after(program: str, **given: str) -> dict[str, str]:
    own = ("OMP_", "GOMP_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    done = subprocess.run(
        [sys.executable, "-c", f"{program}; import json, os; print(json.dumps(dict(os.environ)))"],
        env={**kept, **given},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout))


def test_importing_tidybert_has_threads_sleep_unless_the_user_chose() -> None:
    made = environment_after("import tidybert")
    assert made["OMP_WAIT_POLICY"] == "passive"
    assert int(made["GOMP_SPINCOUNT"]) > 0
    for policy in ("active", "passive"):
        chosen = environment_after("import tidybert", OMP_WAIT_POLICY=policy)
        assert chosen["OMP_WAIT_POLICY"] == policy
        assert "GOMP_SPINCOUNT" not in chosen
    late = environment_after("import sys; sys.modules['torch'] = sys; import tidybert")
    assert "OMP_WAIT_POLICY" not in late


def test_a_quota_limits_the_threads_unless_the_user_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "_own_cores", lambda: 64)
    monkeypatch.setattr(cores, "_cgroup_quota", lambda *_: 3.0)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    for given, expected in (({}, "3"), ({"OMP_NUM_THREADS": "5"}, "5")):
        monkeypatch.setattr(os, "environ", dict(given))
        cores.prepare_threads()
        assert os.environ["OMP_NUM_THREADS"] == expected


def test_a_server_prepares_for_single_texts_unless_the_user_chose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "environ", {"LRU_CACHE_CAPACITY": "7"})
    monkeypatch.setitem(sys.modules, "torch", sys)
    cores.prepare_short_answers()
    assert "ONEDNN_PRIMITIVE_CACHE_CAPACITY" not in os.environ

    monkeypatch.delitem(sys.modules, "torch")
    cores.prepare_short_answers()

    assert int(os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"]) > 32
    assert os.environ["LRU_CACHE_CAPACITY"] == "7"


def test_a_load_above_the_cores_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "available_cores", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (2.1, 0, 0))
    assert cores.load_note() is None
    monkeypatch.setattr(os, "getloadavg", lambda: (7.44, 0, 0))
    note = cores.load_note()
    assert note is not None
    assert "a load of 7.4 in the last minute, and 2 cores" in note


# Pages that the system hands out while a thread takes and gives back 16 MiB, five times.
_FAULTS = """
import os, resource, threading, time
import torch
from tidybert.system.cores import keep_freed_memory

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
