"""The plan for a GPU: steps within limits, a table after each of them, its own corpus."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.speed import cuda
from tidybert import load
from tidybert.corpus.token_shards import TokenCorpus


@pytest.mark.parametrize("has_flash", [False, True])
def test_all_steps_fit_into_the_time(has_flash: bool, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_step_that_fails_or_takes_too_long_is_told() -> None:
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
    assert "| name | b / c |  | " in cuda.page([fine])


def test_the_table_is_written_after_each_step(
    run_script: Callable[..., int],
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

    assert run_script("cuda", "--device", "cpu", "--tiny", "--out", out) == 1

    text = out.read_text()
    assert "| second | 1 |" in text
    assert "| third | failed with status 1: no |" in text
    assert "first (0 s): 1" in capsys.readouterr().out


def test_a_speed_is_told_in_a_line() -> None:
    ours = {"tokens_per_second": 612345.6, "seconds_per_step": 0.214, "peak_mib": 15360.0}
    profile = {"share_outside_products": 0.25, "launches": 805.0, "synchronisations": 1.0}
    result = {
        "medians": {"ours": ours},
        "mfu": {"ours": 0.3456},
        "profile": {"ours": profile},
        "ratios": {"tokens_per_second": 2.5},
    }

    assert cuda.of_speed("tokens")(json.dumps(result)) == (
        "612,346 tokens/s, 15.0 GiB, 214.0 ms a step, 34.6% of the peak, 25% outside products, "
        "805 launches, 1 synchronisations, 2.50 times transformers"
    )


def test_its_own_corpus_and_model(tmp_path: Path) -> None:
    given = {"folder": tmp_path, "size": "tiny", "device": "cpu", "tiny": True}

    found = cuda.prepare(argparse.Namespace(**given))

    assert "600 lines of words at random, a vocabulary of 2,000" in found
    assert len((tmp_path / "texts.txt").read_text().splitlines()) == 100
    assert load(tmp_path / "model")[0].config.vocab_size == 2000
    assert TokenCorpus(tmp_path / "corpus").num_documents > 2


def test_a_line_that_is_being_written_is_no_step(tmp_path: Path) -> None:
    log = tmp_path / "metrics.jsonl"
    assert cuda.steps_of(log) == []
    log.write_text('{"step": 1, "loss": 2.0}\n{"step": 1, "eval_loss": 2.0}\n{"step": 2, "lo')
    assert cuda.steps_of(log) == [{"step": 1, "loss": 2.0}]
