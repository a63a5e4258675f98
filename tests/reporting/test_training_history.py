"""metrics.jsonl read back, whole or torn."""

import json
from pathlib import Path

from tidybert.reporting.training_history import TrainingHistory, read_training_history


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
