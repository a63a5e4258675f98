"""Sides take turns in processes of their own; medians and ratios are of the same rounds."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch

from tidybert.errors import TidyBertError
from tidybert.timing.measuring import (
    gpu_peak_mib,
    in_turn,
    peak_mib,
    run_apart,
    summarize,
    take_rounds,
)
from tidybert.timing.setting import SIDES

MEASURED = """
import os
import sys
from tidybert.timing.measuring import answer

def measure(side, work):
    print("noise on stdout")
    if side == "broken":
        raise RuntimeError("it broke")
    return {"side": side, "work": work, "threads": os.environ.get("OMP_NUM_THREADS")}

answer(measure)
"""


@pytest.fixture
def measured(tmp_path: Path, monkeypatch) -> str:
    """The name of a module that measures nothing and answers with what it was given."""
    (tmp_path / "measured_here.py").write_text(MEASURED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    return "measured_here"


def test_the_answer_is_what_the_function_returned(measured: str) -> None:
    work = {"text": "naïve\n", "number": 1.5, "nothing": None}

    result = run_apart(measured, "ours", work, 3)

    peak = result.pop("peak_mib")
    assert result == {"side": "ours", "work": work, "threads": "3"}
    assert peak > 1


def test_a_failure_ends_with_what_the_process_said(measured: str) -> None:
    with pytest.raises(TidyBertError, match=r"(?s)the broken side failed.*it broke"):
        run_apart(measured, "broken", {}, None)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
def test_the_peak_is_the_processs_own_not_its_parents(measured: str) -> None:
    before = peak_mib()
    ballast = bytearray(b"\1") * (300 * 2**20)
    assert peak_mib() >= max(before, 300)

    assert run_apart(measured, "ours", {}, None)["peak_mib"] < 150
    del ballast


def test_the_sides_take_turns_in_going_first() -> None:
    order = [side for number in range(3) for side in in_turn(SIDES, number)]
    assert order == ["ours", "transformers", "transformers", "ours", "ours", "transformers"]


def test_medians_and_the_median_of_the_rounds_ratios() -> None:
    samples = {"ours": {"speed": [6.0, 8.0, 9.0]}, "transformers": {"speed": [3.0, 1.0, 9.0]}}

    assert summarize(samples) == {
        "samples": samples,
        "medians": {"ours": {"speed": 8.0}, "transformers": {"speed": 3.0}},
        "ratios": {"speed": 2.0},
    }


def test_one_side_has_no_ratio() -> None:
    assert summarize({"ours": {"speed": [4.0]}})["ratios"] == {}


def test_two_sides_of_any_name_have_a_ratio() -> None:
    samples = {"made": {"rate": [6.0]}, "used": {"rate": [2.0]}}

    assert summarize(samples)["ratios"] == {"rate": 3.0}


def test_every_side_is_measured_once_a_round() -> None:
    values = iter(range(4))
    notes: list[str] = []

    samples = take_rounds(
        SIDES, 2, lambda side: ({"place": next(values)}, f"of {side}"), notes.append
    )

    assert samples == {"ours": {"place": [0, 3]}, "transformers": {"place": [1, 2]}}
    assert notes[0] == "round 1 of 2: ours of ours"
    assert notes[-1] == "round 2 of 2: ours of ours"


@pytest.mark.parametrize(
    ("device", "visible", "expected"),
    [
        ("cpu", "5,7", "5,7"),
        ("cuda", "5,7", "5"),
        ("cuda:1", "5,7", "7"),
        ("cuda:1", "", "1"),
    ],
)
def test_a_process_sees_one_gpu(
    device: str, visible: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []

    def started(command: list[str], env: dict[str, str], **_options: object) -> object:
        asked.append((json.loads(command[-1])["device"], env["CUDA_VISIBLE_DEVICES"]))
        return subprocess.CompletedProcess(command, 0, "{}", "")

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr("tidybert.timing.measuring.subprocess.run", started)
    run_apart("module", "ours", {"device": device}, None)

    assert asked == [(device.partition(":")[0], expected)]


def test_the_peak_on_a_gpu_is_its_allocators(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpu_peak_mib() is None
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 3 * 2**20)
    assert gpu_peak_mib() == 3
