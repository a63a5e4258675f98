from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness import datasets
from benchmarks.speed import serve


def part(statuses: dict[str, int], mib: float) -> dict[str, Any]:
    return {
        "statuses": statuses,
        "times": {"200": {"p50_ms": 5.0, "p99_ms": 10.0}},
        "again": {"0": 3, "503": 1},
        "requests_per_second": 80.0,
        "mib": mib,
    }


def test_what_fails() -> None:
    good = [part({"200": 10}, 200.0), part({"200": 10}, 219.0)]
    assert serve.failures(good, serve.MAX_TROUBLED_GROWTH) == []
    last = serve.rows_of({"parts": good})[-1]
    assert " | ".join(last) == "last tenth | 80 | 10 | 0 | 5 | 10 |  | 4 | 219"

    bad = [part({"0": 1, "200": 9}, 200.0), part({"200": 10}, 221.0)]
    assert serve.failures(bad, serve.MAX_TROUBLED_GROWTH) == [
        "part 1 has the statuses {'0': 1, '200': 9}",
        "memory grew from 200 to 221 MiB",
    ]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
@pytest.mark.usefixtures("in_process")
def test_each_request_is_answered_though_workers_die(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "PARTS", 2)
    monkeypatch.setattr(serve, "TROUBLED_CLIENTS", 10)
    monkeypatch.setattr(serve, "CAPACITY_REQUESTS", 100)
    # The first kill comes after one tick, however fast the machine is.
    monkeypatch.setattr(serve, "TICK_S", 0.05)
    # Workers are killed so often that a busy machine may never have all of them at once.
    monkeypatch.setattr(serve, "SETTLED_S", 2.0)
    monkeypatch.setattr(datasets, "mixed_texts", lambda: ("texts", ["the cat", "a hen"]))

    found = serve.troubled(str(tiny_model), 600, 2, 1.0)

    assert [each["statuses"] for each in found["parts"]] == [{"200": 300}] * 2
    assert found["trouble"]["workers killed"] >= 1
    assert all(each["mib"] > 10 for each in found["parts"])
