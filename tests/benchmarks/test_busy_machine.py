"""benchmarks/busy_machine.py: settings take turns, a stopped run goes on, and medians are shown."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def test_medians_of_each_setting(
    script: Callable[[str], ModuleType],
    run_script: Callable[..., None],
    page: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: Any,
) -> None:
    module, out, target = script("busy_machine"), tmp_path / "busy.jsonl", page("busy machine")
    asked: list[tuple[str, str]] = []

    def measured(work: str, waiting: str, flags: list[str]) -> float:
        assert flags == ["--model", "m"]
        asked.append((work, waiting))
        return 100.0 * len(asked) if waiting == "sleep" else 50.0

    monkeypatch.setattr(module, "measured", measured)
    run_script("busy_machine", "--rounds", 1, "--work", "inference", "--out", out, "--model", "m")
    assert asked == [("inference", "sleep"), ("inference", "spin")] * 2

    arguments = ["--rounds", 2, "--work", "inference", "--out", out, "--write", target]
    run_script("busy_machine", *arguments, "--model", "m")

    assert len(asked) == 8
    # Alone 100 and 500, beside 300 and 700.
    row = "| inference | 300 | 50 | 6.00 | 500 | 50 | 10.00 |"
    assert row in capsys.readouterr().out
    assert row in target.read_text()
    assert len(out.read_text().splitlines()) == 8


def test_a_measurement_is_a_process_with_its_waiting(
    script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = script("busy_machine")
    given: dict[str, Any] = {}

    def run(command: list[str], **options: Any) -> Any:
        given.update(command=command, **options)
        answer = {"medians": {"ours": {"texts_per_second_in_order": 7.5}}}
        return type("Done", (), {"stdout": json.dumps(answer)})

    monkeypatch.setattr(module.subprocess, "run", run)
    assert module.measured("inference", "spin", ["--model", "m"]) == 7.5
    assert given["command"][2:5] == ["tidybert", "bench", "infer"]
    assert given["env"]["GOMP_SPINCOUNT"] == "300000"
