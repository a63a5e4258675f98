"""Measuring in a process of its own."""

from pathlib import Path

import pytest

from tidybert.errors import TidyBertError
from tidybert.timing.own_process import peak_mib, run_apart

MEASURED = """
import os
import sys
from tidybert.timing.own_process import answer

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
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
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
