"""The table of a comparison, with or without tidybert at its defaults."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tidybert.files.read_options import ReadOptions
from tidybert.timing.work import FinetuningWork
from tidybert.training.training_arguments import TrainingArguments


def test_a_third_side_trains_with_the_defaults_and_has_the_first_column(
    script: Callable[[str], ModuleType],
    run_script: Callable[..., None],
    page: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    trained: list[TrainingArguments] = []

    def measure_nothing(side: str, work: FinetuningWork) -> Mapping[str, Any]:
        if side == "ours":
            trained.append(work.arguments())
        accuracy = 0.75 if side == "transformers" else 0.5 + 0.4 * work.at_defaults
        return {"metrics": {"accuracy": accuracy}, "seconds": 2.0, "peak_mib": 3}

    choice, job = script("choice"), script("side_by_side").Job
    jobs = {"toy": job("choose", "", "", ReadOptions(), ("accuracy",), num_train_epochs=2)}
    monkeypatch.setattr(choice, "run", partial(choice.run, measure=measure_nothing))
    monkeypatch.setattr(choice, "TASKS", jobs)
    shown = page("choice")
    given = ("choice", "--out", tmp_path / "measured.jsonl", "--write", shown)

    run_script(*given, "--seeds", "2")
    assert "| task | metric | tidybert | transformers | seeds |" in shown.read_text()
    run_script(*given, "--seeds", "1", "--defaults")

    assert "at its defaults | tidybert at transformers' settings | transf" in shown.read_text()
    row = "| toy | accuracy | 90.0 (1 of 2 seeds) | 50.0 ± 0.0 | 75.0 ± 0.0 | 2 |"
    assert row in shown.read_text()
    assert [each.head_start for each in trained] == ["random", "random", None]
    assert trained[-1] == TrainingArguments(num_train_epochs=2, precision="float32", seed=1)
