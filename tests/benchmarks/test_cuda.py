"""benchmarks/cuda.py: steps within limits, a table after each of them, and checks that can fail."""

import json
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch


@pytest.fixture
def cuda(script: Callable[[str], ModuleType]) -> Iterator[Any]:
    yield script("cuda")
    # PyTorch looks for a package of this name.
    del sys.modules["cuda"]


@pytest.fixture
def checks(script: Callable[[str], ModuleType]) -> Any:
    return script("cuda_checks")


@pytest.mark.parametrize("has_flash", [False, True])
def test_all_steps_fit_into_the_time(
    has_flash: bool, cuda: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda.importlib.util, "find_spec", lambda _name: has_flash or None)
    steps = cuda.plan("cuda", False, Path("folder"), None)

    assert sum(step.limit for step in steps) <= cuda.MOST_SECONDS == 25 * 60
    assert len({step.name for step in steps}) == len(steps)
    assert has_flash == any("transformers-flash" in step.command for step in steps)
    assert any("--compile" in step.command for step in steps)
    # A small try has the same steps, without what a CPU cannot do.
    tiny = cuda.plan("cpu", True, Path("folder"), Path("mine"))
    assert len(tiny) == len(steps) - 1 - 2 * has_flash
    assert sum("mine" in step.command for step in tiny) > 5


def test_a_step_that_fails_or_takes_too_long_is_told(cuda: Any, tmp_path: Path) -> None:
    def step(program: str, limit: float = 20.0) -> Any:
        return cuda.Step("name", ("-c", program), limit, "", cuda.last_line)

    fine = cuda.run(step("print('a'); print('b | c'); print()"), 100.0)
    assert (fine.found, fine.failed) == ("b | c", False)
    failed = cuda.run(step("print('a'); raise SystemExit('why')"), 100.0)
    assert (failed.found, failed.failed) == ("failed with status 1: why", True)
    # What it started is killed with it.
    child = "import subprocess, sys, time; print('begun', flush=True); "
    child += "subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    late = cuda.run(step(child, limit=1.0), 100.0)
    assert late.found.startswith("stopped after 1 s")
    assert late.output == "begun\n"
    assert late.seconds < 20
    assert cuda.run(step("print()"), 0.0).found == "not run: the time is over"
    assert "| name | b / c |  | " in cuda.page([fine], "here")


def test_the_table_is_written_after_each_step(
    cuda: Any,
    run_script: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "cuda.md"
    read = f"print(open({str(out)!r}).read().count('| first | 1 |'))"
    programs = {"first": "print(1)", "second": read, "third": "raise SystemExit('no')"}
    steps = [
        cuda.Step(name, ("-c", program), 20.0, "", cuda.last_line)
        for name, program in programs.items()
    ]
    monkeypatch.setattr(cuda, "plan", lambda *_given: steps)

    with pytest.raises(SystemExit):
        run_script("cuda", "--device", "cpu", "--tiny", "--out", out)

    text = out.read_text()
    assert "| second | 1 |" in text
    assert "| third | failed with status 1: no |" in text
    assert "first (0 s): 1" in capsys.readouterr().out


def test_a_bench_is_told_in_a_line(cuda: Any) -> None:
    result = {
        "medians": {"ours": {"tokens_per_second": 612345.6, "peak_mib": 15360.0}},
        "mfu": {"ours": 0.3456},
        "profile": {
            "ours": {"share_outside_products": 0.25, "launches": 805.0, "synchronisations": 1.0}
        },
        "ratios": {"tokens_per_second": 2.5},
    }
    found = cuda.of_bench("tokens_per_second", "tokens/s")

    assert found(json.dumps(result, indent=2)) == (
        "612,346 tokens/s, 15.0 GiB, 34.6% of the peak, 25% outside products, 805 launches, "
        "1 synchronisations, 2.50 times transformers"
    )


def test_a_corpus_of_its_own_and_a_micro_batch(
    run_script: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--device", "cpu", "--size", "tiny", "--folder", tmp_path, "--tiny")
    run_script("cuda_checks", "prepare", *flags)
    assert "MB of words at random" in capsys.readouterr().out
    assert len((tmp_path / "texts.txt").read_text().splitlines()) == 100

    flags = (*flags, "--data", tmp_path / "corpus", "--tokens", "512", "--dropout", "0.1")
    run_script("cuda_checks", "micro-batch", *flags, "--max-seq-length", "64")
    lines = capsys.readouterr().out.splitlines()
    assert " ms to launch, " in lines[-1]
    assert lines[-1].endswith("% outside products")
    assert any("linear" in line or "mm" in line for line in lines[:-1])


def test_kernels_that_differ_are_an_error(
    checks: Any,
    run_script: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cpu = torch.device("cpu")
    assert checks.loss_error(cpu) < 1e-3
    assert checks.dropout_rate(cpu) == pytest.approx(0.1, abs=0.01)
    times = {"new lengths": 0.5, "again": 0.25}
    monkeypatch.setattr(checks, "length_times", lambda _device: times)
    monkeypatch.setattr(checks, "attention_errors", lambda _device: [("one", 0.01)])
    run_script("cuda_checks", "kernels", "--device", "cpu")
    assert "new lengths take 2.00 times as long" in capsys.readouterr().out

    monkeypatch.setattr(checks, "attention_errors", lambda _device: [("one", math.nan)])
    with pytest.raises(SystemExit, match="expected errors under"):
        run_script("cuda_checks", "kernels", "--device", "cpu")
    monkeypatch.setattr(checks, "attention_errors", lambda _device: [("one", 0.01)])
    monkeypatch.setattr(checks, "dropout_rate", lambda _device: 0.125)
    with pytest.raises(SystemExit, match=r"0\.1 measures 0\.1250"):
        run_script("cuda_checks", "kernels", "--device", "cpu")


def test_attention_is_checked_against_the_formula(
    checks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "_LENGTHS", ((9, 3, 7, 1),))
    errors = dict(checks.attention_errors(torch.device("cpu")))

    assert len(errors) == 10
    assert 0 < max(errors.values()) < 0.06
