"""benchmarks/serving_soak.py: a real server under load, and what counts as a failure."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tidybert.timing.http_load import run_load

pytest.importorskip("fastapi")


def part(statuses: dict[str, int], mib: float, ms: float = 10.0) -> dict[str, Any]:
    times = {status: {"p50_ms": ms / 2, "p99_ms": ms} for status in statuses}
    return {
        "statuses": statuses, "times": times, "requests_per_second": 80.0, "resident_mib": mib
    }  # fmt: skip


def found(*parts: dict[str, Any], overload: dict[str, Any]) -> dict[str, Any]:
    return {"data": "texts", "capacity": 100.0, "parts": parts, "overload": overload}


def test_what_fails(script: Callable[[str], ModuleType]) -> None:
    module = script("serving_soak")
    fine = part({"200": 50, "429": 100}, 210.0, 400.0)
    good = found(part({"200": 10}, 200.0), part({"200": 10}, 209.0), overload=fine)
    assert module.failures(good) == []
    assert "| last tenth | 80 | 10 | 0 | 5 | 10 |  | 209 |" in module.table(good)
    assert "| 3 times capacity | 80 | 50 | 100 | 200 | 400 | 400 | 210 |" in module.table(good)

    bad = found(
        part({"200": 10}, 200.0),
        part({"0": 1, "200": 9}, 211.0),
        overload=part({"200": 50, "429": 100}, 210.0, 4000.0),
    )
    memory, statuses, taken, refused = module.failures(bad)
    assert memory == "memory grew from 200 to 211 MiB"
    assert statuses == "part 2 has the statuses {'0': 1, '200': 9}"
    assert taken == "p99 of what was taken is 4,000 ms, more than 3,840 ms"
    assert refused == "p99 of the refusals is 4,000 ms, more than 500"
    lost = found(part({"200": 10}, 200.0), overload=part({"0": 1, "200": 9}, 200.0))
    assert module.failures(lost) == [
        "the overload has the statuses {'0': 1, '200': 9}, not 200 and 429"
    ]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
def test_a_short_soak(
    script: Callable[[str], ModuleType], tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = script("serving_soak")
    monkeypatch.setattr(module, "ask", run_load)
    monkeypatch.setattr(module, "PARTS", 2)
    monkeypatch.setattr(module, "CONNECTIONS", 20)
    monkeypatch.setattr(module, "mixed_texts", lambda: ("texts", ["the cat", "a red hen"]))
    monkeypatch.setattr(module, "save_classifier", shorter(module.save_classifier))

    result = module.soak(str(tiny_model), 20, 0.1, 40)

    assert [each["statuses"] for each in result["parts"]] == [{"200": 10}] * 2
    assert set(result["overload"]["statuses"]) <= {"200", "429"}
    assert result["capacity"] > 0
    assert all(each["resident_mib"] > 10 for each in result["parts"])
    assert len(module.table(result)) == 5


def shorter(save: Callable[..., None]) -> Callable[..., None]:
    """The tiny model has 32 positions, not 128."""
    return lambda model, directory, _length: save(model, directory, 32)
