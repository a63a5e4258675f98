"""Branches, data passed over, and divergences that say how to go on."""

import json
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidybert.catalog import find_model
from tidybert.cli.main import run as shell
from tidybert.errors import ModelNotFoundError, TrainingError, UsageError
from tidybert.pretraining.pretraining_arguments import (
    PretrainingArguments,
    is_skipped,
    rate_at,
    skipped_ranges,
)
from tidybert.system.reporter import Reporter
from tidybert.training.interruption import StopRequest, TrainingInterrupted
from tidybert.training.reports import StepReport

Small = Callable[..., Any]
KEPT = {"eval_steps": 100, "keep_every": 1, "save_steps": 4}


def weights_of(run: Path) -> bytes:
    return (run / "model.safetensors").read_bytes()


def logged(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def without_times(run: Path) -> list[dict[str, Any]]:
    return [
        {name: each for name, each in line.items() if name != "tokens_per_second"}
        for line in logged(run)
    ]


def stop_after(step: int, number: int = signal.SIGTERM) -> Reporter:
    def report(done: StepReport) -> None:
        if done.step == step:
            signal.raise_signal(number)

    return Reporter(step=report)


@pytest.fixture
def whole(tmp_path: Path, small: Small) -> Path:
    """A finished run that kept the checkpoints of step 4, 8 and 12."""
    small(tmp_path / "whole", **KEPT)
    return tmp_path / "whole"


def test_a_branch_is_the_run_it_came_from(whole: Path, small: Small, tmp_path: Path) -> None:
    branch = f"{whole}@4"
    with pytest.raises(TrainingInterrupted):
        small(tmp_path / "new", branch=branch, reporter=stop_after(6), **KEPT)
    # A supervisor gives the same command, with resume.
    result = small(tmp_path / "new", branch=branch, resume=True, **KEPT)

    assert result.resumed_from == 6
    assert weights_of(tmp_path / "new") == weights_of(whole)
    assert without_times(tmp_path / "new") == without_times(whole)
    record = json.loads((tmp_path / "new/arguments.json").read_text())["record"]
    assert record["changed_on_the_way"] == [{"step": 4, "branch": [None, branch]}]
    assert (whole / "checkpoints/step-8").exists()


def test_a_branch_decays_as_a_run_that_was_told_so(
    whole: Path, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {**KEPT, "max_steps": 8, "decay_steps": 4, "warmup_steps": 1}
    small(tmp_path / "decayed", branch=f"{whole}@4", **given)

    def told(step: int, arguments: PretrainingArguments) -> float:
        before = PretrainingArguments(recipe="fast", max_steps=12, learning_rate=1e-2)
        return rate_at(step, before if step < 4 else arguments)

    monkeypatch.setattr("tidybert.pretraining.pretraining_objective.rate_at", told)
    small(tmp_path / "told", **given)

    assert weights_of(tmp_path / "decayed") == weights_of(tmp_path / "told")
    rates = [line["learning_rate"] for line in logged(tmp_path / "decayed") if "loss" in line]
    assert rates[4:] == pytest.approx([1e-2, 7.5e-3, 5e-3, 2.5e-3])


def test_data_passed_over_by_a_branch_or_from_the_beginning(
    whole: Path, small: Small, tmp_path: Path
) -> None:
    skipped = {**KEPT, "skip_steps": "6:8"}
    small(tmp_path / "branch", branch=f"{whole}@4", **skipped)
    notes: list[str] = []
    small(tmp_path / "told", reporter=Reporter(note=notes.append), **skipped)

    assert sum("data are passed over" in note for note in notes) == 1
    assert weights_of(tmp_path / "branch") == weights_of(tmp_path / "told") != weights_of(whole)
    lines = logged(tmp_path / "told")
    assert [line["step"] for line in lines if line.get("skipped")] == [6, 7, 8]
    # The later steps have the data that they would have had.
    states = [
        json.loads((run / "checkpoints/step-12/training_state.json").read_text())
        for run in (tmp_path / "told", whole)
    ]
    assert states[0]["progress"]["position"] == states[1]["progress"]["position"]


def test_what_cannot_be_branched_or_skipped_is_refused(
    whole: Path, small: Small, tmp_path: Path
) -> None:
    with pytest.raises(ModelNotFoundError, match="no checkpoint of step '5'; it has 4, 8, 12"):
        small(tmp_path / "new", branch=f"{whole}@5")
    with pytest.raises(TrainingError, match=r"cannot change.*\n  optimizer: muon before"):
        small(tmp_path / "new", branch=f"{whole}@4", optimizer="adamw")
    for text in ("5", "8:6", "0:3", "1:2,x"):
        with pytest.raises(UsageError, match=r"skip_steps is .*expected the first and the last"):
            skipped_ranges(text)
    arguments = PretrainingArguments(skip_steps="2:3, 7:7")
    assert [step for step in range(9) if is_skipped(step, arguments)] == [1, 2, 6]


def test_a_branch_takes_the_arguments_of_its_run(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["pretrain", "--branch", f"{whole}@8", "--out", str(tmp_path / "new")]

    assert shell([*words, "--learning-rate", "0.001"]) == 0
    assert shell([*words, "--learning-rate", "0.001", "--resume"]) == 0

    assert "there is nothing to resume" in capsys.readouterr().err
    arguments = json.loads((tmp_path / "new/arguments.json").read_text())
    assert (arguments["max_steps"], arguments["learning_rate"]) == (12, 0.001)
    assert arguments["record"]["changed_on_the_way"][-1]["learning_rate"] == [0.01, 0.001]
    assert shell(["pretrain", "--branch", str(whole), "--out", str(tmp_path / "other")]) == 2
    assert "expected RUN@STEP" in capsys.readouterr().err


def test_a_leap_says_where_it_began_and_how_to_branch_before_it(
    whole: Path, small: Small, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {**KEPT, "max_steps": 30, "optimizer": "adamw", "dropout": 0.0}
    run = tmp_path / "run"
    with pytest.raises(TrainingInterrupted):
        small(run, reporter=stop_after(12), learning_rate=1e-3, **given)
    with pytest.raises(TrainingError) as caught:
        small(run, resume=True, change=True, learning_rate=10.0, max_bad_steps=3, **given)

    message = caught.value.message
    assert re.search(
        r"the loss leaped from [0-9.]+, the median of 1[0-9] steps, and stayed high for 3 steps in "
        r"a row: it began at step 1[3-5] of 30; the last loss is [0-9.e+]+",
        message,
    )
    assert re.search(r"Gradient norms before: [0-9.]+ \(step \d+\), ", message)
    command = message.splitlines()[-1].split()
    first = int(re.findall(r"began at step (\d+)", message)[0])
    assert command[:4] == ["tidybert", "pretrain", "--branch", f"{run}@12"]
    assert command[4:] == ["--out", f"{run}-from-12", "--skip-steps", f"{first}:{first + 2}"]
    assert shell([*command[1:], "--learning-rate", "0.001", "--max-steps", "20"]) == 0
    assert (tmp_path / "run-from-12/model.safetensors").exists()
    assert f"from step {first} on, data are passed over" in capsys.readouterr().err


def test_schedules_end_at_their_lowest_rate() -> None:
    given: dict[str, Any] = {"max_steps": 100, "warmup_steps": 0, "learning_rate": 1.0}

    def rates(schedule: str, **more: Any) -> list[float]:
        arguments = PretrainingArguments(schedule=schedule, **given, **more)
        return [rate_at(step, arguments) for step in (0, 50, 80, 90, 100)]

    assert rates("linear") == pytest.approx([1, 0.5, 0.2, 0.1, 0])
    assert rates("linear", min_learning_rate=0.2) == pytest.approx([1, 0.6, 0.36, 0.28, 0.2])
    assert rates("trapezoid") == pytest.approx([1, 1, 1, 0.5, 0])
    assert rates("trapezoid", decay_steps=50) == pytest.approx([1, 1, 0.4, 0.2, 0])
    assert rates("cosine")[::2] == pytest.approx([1, 0.1 + 0.9 * 0.0954915, 0.1])
    assert rates("cosine", min_learning_rate=0.0)[1] == pytest.approx(0.5)
    with pytest.raises(UsageError, match=r"min_learning_rate is 2.0; expected at most"):
        rates("linear", min_learning_rate=2.0)


def test_a_preempted_run_goes_on_as_long_as_it_may(small: Small, tmp_path: Path) -> None:
    given = {**KEPT, "save_steps": 2, "max_steps": 10}
    small(tmp_path / "whole", **given)
    began: list[float] = []

    def report(done: StepReport) -> None:
        if done.step == 7:
            began.append(time.monotonic())
            signal.raise_signal(signal.SIGTERM)

    notes: list[str] = []
    reporter = Reporter(step=report, note=notes.append)
    # Ten minutes are enough for all steps, and three for one checkpoint; Ctrl-C does not wait.
    small(tmp_path / "run", reporter=reporter, preempt_seconds=600.0, **given)
    with pytest.raises(TrainingInterrupted, match="stopped after step 3"):
        small(
            tmp_path / "cut",
            reporter=stop_after(3, signal.SIGINT),
            preempt_seconds=600.0,
            **given,
        )

    assert weights_of(tmp_path / "run") == weights_of(tmp_path / "whole")
    assert any("SIGTERM: the run ends within 600 s" in note for note in notes)
    request = StopRequest(signal.SIGTERM, time.monotonic() - 20)
    assert [request.is_due(30, needed) for needed in (5, 15)] == [False, True]
    assert request.is_due(None, 5)
    assert not StopRequest().is_due(30, float("inf"))


def test_the_end_of_a_preempted_run_has_time_for_a_checkpoint(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    monkeypatch.setattr(StopRequest, "is_due", lambda _self, _given, needed: asked.append(needed))
    monkeypatch.setattr(time, "perf_counter", iter(range(10**6)).__next__)
    small(tmp_path / "run", **{**KEPT, "save_steps": 2, "max_steps": 4})

    # Nobody knows how long a checkpoint takes before the first one.
    assert asked[:2] == [float("inf")] * 2
    assert len(asked) == 4
    assert min(asked) > 4


def test_find_model_prefers_a_folder_of_that_name(tmp_path: Path) -> None:
    (tmp_path / "run/checkpoints").mkdir(parents=True)
    (tmp_path / "run@5").mkdir()

    assert find_model(str(tmp_path / "run@5")) == tmp_path / "run@5"
