"""The watchdog: it speaks while a step is still running, once, and only of slow ones."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidybert.data.batching import Batch
from tidybert.training import interruption as watchdog
from tidybert.training.interruption import SlowStep, Watchdog
from tidybert.training.loop import TrainingLoop


def test_a_slow_step_is_said_once_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "LEAST_SECONDS", 0.02)
    said: list[SlowStep] = []

    with Watchdog(said.append, every=0.005) as watching:
        for number in range(1, 7):
            with watching.step(number, str):
                pass
        with watching.step(7, lambda: "the seventh batch"):
            deadline = time.monotonic() + 10
            while not said and time.monotonic() < deadline:
                time.sleep(0.005)
            time.sleep(0.05)

    assert [(each.step, each.place) for each in said] == [(7, "the seventh batch")]
    assert said[0].seconds > 100 * said[0].median


def test_steps_that_are_always_long_are_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "LEAST_SECONDS", 0.001)
    said: list[SlowStep] = []

    with Watchdog(said.append, every=0.001) as watching:
        for number in range(8):
            with watching.step(number, str):
                time.sleep(0.005)

    assert said == []


def test_a_run_notes_and_logs_a_slow_step_with_its_place(
    make_trainer: Callable[..., TrainingLoop],
    loss: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watchdog, "LEAST_SECONDS", 0.02)
    monkeypatch.setattr(watchdog, "TIMES", 0)
    monkeypatch.setattr(
        "tidybert.training.runs.run_record.Watchdog", lambda say: Watchdog(say, every=0.005)
    )
    said: list[str] = []

    def slow_loss(model: Any, batch: Batch) -> Any:
        if trainer.state.step == 8:
            deadline = time.monotonic() + 10
            while not any("step 9 of 14" in line for line in said):
                assert time.monotonic() < deadline
                time.sleep(0.005)
        return loss(model, batch)

    trainer = make_trainer(run=tmp_path, loss=slow_loss, note=said.append)
    trainer.train()

    (line,) = [line for line in said if "step 9 of 14" in line]
    assert "of the training data" in line
    assert '{"step": 9, "slow_step": {"place": ' in (tmp_path / "metrics.jsonl").read_text()
