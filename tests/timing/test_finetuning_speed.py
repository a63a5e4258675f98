"""Fine-tuning timed: both sides take the same steps, and a bench sums up what it measured."""

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.files.read_options import ReadOptions
from tidybert.pretraining.throughput import flops_per_token
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
        # In this process: that each side has one of its own is shown above.
        result = finetuning._run(side, asdict(choose))
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


def test_the_figures_of_a_gpu_are_those_of_timed_steps(
    work: FinetuningWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = replace(work, device="cuda", profiled_steps=3, dropout=0.25)
    configs: list[dict[str, Any]] = []

    def measured(_side: str, work: FinetuningWork) -> dict[str, Any]:
        configs.append(json.loads((Path(work.model) / "config.json").read_text()))
        # 4 steps to time, up to 20 to warm up, 3 under the profiler.
        assert (work.max_steps, work.profiled_steps) == (27, 3)
        return {
            "step_seconds": [9.0] + [1.0] * 22,
            "step_examples": [8] * 27,
            "threads": 1,
            "peak_mib": 7,
            "peak_examples_per_second": 32.0,
            "profile": {"product_seconds": 0.75, "busy_seconds": 0.8, "launches": 9.0},
        }

    monkeypatch.setattr(finetuning, "measure", measured)
    result = finetuning.bench_finetuning(given, sides=("ours",), steps=4, rounds=1)

    assert result["warm_up_steps"] == {"ours": 9}
    assert result["step_seconds"]["ours"] == [[1.0] * 15]
    assert result["medians"]["ours"]["examples_per_second"] == 8.0
    assert result["mfu"] == {"ours": 0.25}
    assert result["profile"]["ours"]["share_outside_products"] == 0.25
    rates = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    assert [configs[0][name] for name in rates] == [0.25, 0.25]


def test_a_model_with_other_dropout_can_be_trained(work: FinetuningWork) -> None:
    with finetuning._with_dropout(replace(work, dropout=0.5, dev=None, max_steps=2)) as given:
        assert ModelDirectory.open(given.model).config.hidden_dropout_prob == 0.5
        result = finetuning._run_ours(replace(given, profiled_steps=1))

    assert (result["num_steps"], result["step_seconds"]) == (2, [])
    assert result["profile"]["product_seconds"] > 0


def test_the_peak_in_examples_is_the_devices(
    work: FinetuningWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert finetuning.peak_examples_per_second(work) is None
    monkeypatch.setattr(finetuning, "peak_flops", lambda _device, **_mixed: 1e12)

    config = ModelDirectory.open(work.model).config
    # Texts are cut to 16 tokens; most are shorter.
    longest = 1e12 / (16 * flops_per_token(config, 16, 0.0))
    found = finetuning.peak_examples_per_second(replace(work, max_steps=3))
    assert found is not None
    assert longest <= found < 4 * longest
    assert finetuning.peak_examples_per_second(replace(work, freeze_layers=1)) is None


def test_one_side_alone(
    work: FinetuningWork, fake_measure: list[tuple[str, FinetuningWork]]
) -> None:
    result = finetuning.bench_finetuning(work, sides=("ours",), steps=1, rounds=3)

    assert [side for side, _ in fake_measure] == ["ours"] * 3
    assert result["ratios"] == {}
