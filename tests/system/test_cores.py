"""Cores by affinity and by cgroup quota, threads that sleep, and a busy machine."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidybert.system import cores


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
