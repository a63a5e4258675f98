"""Fine-tuning timed: both sides take the same steps, and a bench sums up what it measured."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tidybert.files.read_options import ReadOptions
from tidybert.timing import finetuning_speed as finetuning
from tidybert.timing.finetuning_speed import measure
from tidybert.timing.measuring import UNTIMED_STEPS
from tidybert.timing.setting import SIDES
from tidybert.timing.work import FinetuningWork


def test_both_sides_take_the_same_steps(work: FinetuningWork) -> None:
    for side in SIDES:
        result = measure(side, work)
        assert result["step_examples"] == [8, 8, 4, 8, 8, 4, 8]
        assert (result["num_steps"], result["num_examples"]) == (7, 48)
        assert len(result["step_seconds"]) == 6
        assert 0 < sum(result["step_seconds"]) <= result["seconds"]
        assert result["threads"] == 1
        assert result["peak_mib"] > 1
        assert 0 <= result["metrics"]["accuracy"] <= 1


def test_choices_too_are_taken_by_both_sides(
    work: FinetuningWork, tiny_model: Path, tmp_path: Path
) -> None:
    path, model = tmp_path / "train.tsv", tmp_path / "model"
    shutil.copytree(tiny_model, model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({"model_type": "bert", **config}))
    endings = ["cat", "red", "the old dog", "blue"]
    rows = [("o", f"we saw {word}", *endings, str(n % 4)) for n, word in enumerate(endings * 5)]
    path.write_text("\n".join("\t".join(row) for row in rows))
    given = {"task": "choose", "model": str(model), "train": str(path), "dev": str(path)}
    choose = replace(work, options=ReadOptions(), **given)

    for side in SIDES:
        result = measure(side, choose)
        assert result["step_examples"] == [8, 8, 4, 8, 8, 4, 8]
        assert 0 <= result["metrics"]["accuracy"] <= 1
        assert result["metrics"]["log_loss"] > 0


@pytest.fixture
def fake_measure(monkeypatch) -> list[tuple[str, FinetuningWork]]:
    """Takes the place of ``measure``; the list gets its calls."""
    calls: list[tuple[str, FinetuningWork]] = []

    def fake(side: str, work: FinetuningWork) -> dict[str, Any]:
        calls.append((side, work))
        assert work.max_steps is not None
        slowness = 1.0 if side == "ours" else 3.0
        slowness *= 1 + len(calls) // 3
        # The first steps are slow: they must not count.
        seconds = [99.0] * (UNTIMED_STEPS - 1) + [slowness] * (work.max_steps - UNTIMED_STEPS)
        return {
            "step_seconds": seconds,
            "step_examples": [32] * work.max_steps,
            "threads": 2,
            "peak_mib": 100 if side == "ours" else 400,
        }

    monkeypatch.setattr(finetuning, "measure", fake)
    return calls


def test_a_bench_sums_up_its_rounds(
    work: FinetuningWork, fake_measure: list[tuple[str, FinetuningWork]]
) -> None:
    notes: list[str] = []

    result = finetuning.bench_finetuning(work, steps=4, rounds=2, report=notes.append)

    assert [side for side, _ in fake_measure] == ["ours", "transformers", "transformers", "ours"]
    given = fake_measure[0][1]
    assert given.dev is None
    assert given.max_steps == given.num_train_epochs == 4 + UNTIMED_STEPS
    assert all(other == given for _, other in fake_measure)
    assert result["samples"] == {
        "ours": {
            "examples_per_second": [32.0, 16.0],
            "seconds_per_step": [1.0, 2.0],
            "peak_mib": [100, 100],
        },
        "transformers": {
            "examples_per_second": [32 / 3, 32 / 6],
            "seconds_per_step": [3.0, 6.0],
            "peak_mib": [400, 400],
        },
    }
    assert result["ratios"] == pytest.approx(
        {"examples_per_second": 3.0, "seconds_per_step": 1 / 3, "peak_mib": 0.25}
    )
    assert result["step_seconds"]["ours"] == [[1.0] * 4, [2.0] * 4]
    assert (result["steps"], result["rounds"], result["threads"]) == (4, 2, 2)
    assert notes[0] == "round 1 of 2: ours 32.0 examples/s"


def test_one_side_alone(
    work: FinetuningWork, fake_measure: list[tuple[str, FinetuningWork]]
) -> None:
    result = finetuning.bench_finetuning(work, sides=("ours",), steps=1, rounds=3)

    assert [side for side, _ in fake_measure] == ["ours"] * 3
    assert result["ratios"] == {}
