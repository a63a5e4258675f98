"""metrics.jsonl read back, whole or torn, and its lines."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidybert.reporting.training_history import (
    TrainingHistory,
    extremes,
    read_training_history,
    smooth_course,
)


def test_steps_and_evaluations_are_told_apart(tmp_path: Path) -> None:
    lines = [
        {"step": 1, "epoch": 0.5, "loss": 0.7, "learning_rate": 1e-5, "gradient_norm": 2.0},
        {"step": 2, "epoch": 1.0, "loss": 0.6, "learning_rate": 2e-5, "gradient_norm": 2.0},
        {"step": 2, "eval_accuracy": 0.8, "eval_log_loss": 0.5},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    assert read_training_history(tmp_path) == TrainingHistory(
        steps=[
            {"step": 1, "loss": 0.7, "learning_rate": 1e-5},
            {"step": 2, "loss": 0.6, "learning_rate": 2e-5},
        ],
        evaluations=[{"step": 2, "accuracy": 0.8, "log_loss": 0.5}],
    )


def test_what_comes_before_step_1_has_its_seconds_and_losses(tmp_path: Path) -> None:
    losses = [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25}]
    lines: list[dict[str, object]] = [
        {"step": 0, "stage": "contrast", "seconds": 280.5, "steps": losses},
        {"step": 0, "stage": "probe", "seconds": 1.5, "steps": [7, {"step": "x"}]},
        {"step": 0, "eval_accuracy": 0.9},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    assert read_training_history(tmp_path) == TrainingHistory(
        steps=[],
        evaluations=[{"step": 0, "accuracy": 0.9}],
        stages=[
            {"stage": "contrast", "seconds": 280.5, "steps": losses},
            {"stage": "probe", "seconds": 1.5, "steps": []},
        ],
    )


def test_what_is_torn_or_not_finite_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(
        '{"step": 1, "loss": NaN, "learning_rate": 1e-5}\n[1]\n\n7\n{"loss": 1}\n'
        '{"step": 2, "loss": 0.5}\n{"step": 3, "lo'
    )
    history = read_training_history(tmp_path)
    assert history == TrainingHistory(steps=[{"step": 2, "loss": 0.5}], evaluations=[])


def test_a_directory_without_a_log_has_no_history(tmp_path: Path) -> None:
    assert read_training_history(tmp_path) is None
    assert read_training_history(tmp_path / "absent") is None
    (tmp_path / "metrics.jsonl").write_text("\n")
    assert read_training_history(tmp_path) is None


def test_a_finished_run_has_one(tiny_run: Path) -> None:
    history = read_training_history(tiny_run)
    assert history is not None
    assert history.steps[-1]["step"] == history.evaluations[-1]["step"]
    assert 0 <= history.evaluations[-1]["accuracy"] <= 1


@given(values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=900))
def test_extremes_keep_every_jump(values: list[float]) -> None:
    kept = extremes([(float(x), y) for x, y in enumerate(values)])

    assert len(kept) <= 402
    assert kept == sorted(kept)
    assert max(y for _, y in kept) == max(values)
    assert min(y for _, y in kept) == min(values)


def test_a_smooth_course_follows_a_steep_beginning() -> None:
    points = [(float(n), 100.0 / n) for n in range(1, 201)]
    smooth = smooth_course(points)

    assert smooth[0] == points[0]
    # The second value and one on each side.
    assert smooth[1][1] == pytest.approx((100 + 50 + 100 / 3) / 3)
    # Five values on each side, and none after the last.
    assert smooth[100][1] == pytest.approx(sum(100 / n for n in range(96, 107)) / 11)
    assert smooth[-1][1] == pytest.approx(sum(100 / n for n in range(195, 201)) / 6)
