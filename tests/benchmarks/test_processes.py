"""A measurement in a process of its own: what goes in and comes out, its memory and its GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.harness.script import gpu_peak_mib, in_environment, memory_mib, run_apart
from tidybert.errors import TidyBertError

MEASURED = """
import os

def measure(side, work):
    print("noise on stdout")
    if side == "broken":
        raise RuntimeError("it broke")
    return {"side": side, "work": work, "threads": os.environ.get("OMP_NUM_THREADS")}
"""


@pytest.fixture
def measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that measures nothing and returns what it was given."""
    (tmp_path / "measured_here.py").write_text(MEASURED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.syspath_prepend(str(tmp_path))
    import measured_here  # type: ignore[import-not-found]

    yield measured_here.measure
    del sys.modules["measured_here"]


def test_the_answer_is_what_the_function_returned(measure: Any) -> None:
    work = {"text": "naïve\n", "number": 1.5, "nothing": None}

    result = run_apart(measure, "ours", work, 3)

    assert result.pop("peak_mib") > 1
    assert result == {"side": "ours", "work": work, "threads": "3"}
    with pytest.raises(TidyBertError, match=r"(?s)the broken side failed.*it broke"):
        run_apart(measure, "broken", {}, None)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
def test_the_peak_is_the_processs_own_not_its_parents(measure: Any) -> None:
    before = memory_mib()
    ballast = bytearray(b"\1") * (300 * 2**20)
    assert memory_mib() >= max(before, 300)
    assert memory_mib(field="VmRSS") >= 300

    assert run_apart(measure, "ours", {}, None)["peak_mib"] < 150
    del ballast


@pytest.mark.parametrize(
    ("device", "visible", "expected"),
    [("cpu", "5,7", "5,7"), ("cuda", "5,7", "5"), ("cuda:1", "5,7", "7"), ("cuda:1", "", "1")],
)
def test_a_process_sees_one_gpu(
    device: str, visible: str, expected: str, measure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []

    def started(command: list[str], env: dict[str, str], **_options: object) -> object:
        asked.append((json.loads(command[-1])["device"], env["CUDA_VISIBLE_DEVICES"]))
        return subprocess.CompletedProcess(command, 0, "{}", "")

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr("benchmarks.harness.script.subprocess.run", started)
    run_apart(measure, "ours", {"device": device}, None)

    assert asked == [(device.partition(":")[0], expected)]


def test_the_peak_on_a_gpu_is_its_allocators(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpu_peak_mib() is None
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 3 * 2**20)
    assert gpu_peak_mib() == 3


def test_a_program_of_another_environment() -> None:
    program = "import json, sys; print('noise'); print(json.dumps([json.load(sys.stdin)] * 2))"

    assert in_environment(sys.executable, program, {"p": [0.5]}) == [{"p": [0.5]}] * 2
    with pytest.raises(TidyBertError, match=r"(?s)python.* failed.*no such method"):
        in_environment(sys.executable, "raise SystemExit('no such method')", None)
