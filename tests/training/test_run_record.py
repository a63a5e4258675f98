"""metrics.jsonl: lines appended, and taken back to a step."""

import json
from pathlib import Path

from tidybert.training.run_record import MetricsLog


def steps_in(path: Path) -> list[int]:
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def test_each_object_is_a_line(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path)
    log.write({"step": 1, "loss": 0.5})
    log.write({"step": 2, "eval_accuracy": 1.0})

    assert (tmp_path / "metrics.jsonl").read_text() == (
        '{"step": 1, "loss": 0.5}\n{"step": 2, "eval_accuracy": 1.0}\n'
    )


def test_rewinding_drops_later_lines_and_half_a_line(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path)
    for step in (1, 2, 2, 3):
        log.write({"step": step})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "lo')

    log.rewind(2)
    log.write({"step": 3})

    assert steps_in(tmp_path / "metrics.jsonl") == [1, 2, 2, 3]


def test_without_a_run_nothing_is_kept(tmp_path: Path) -> None:
    MetricsLog(None).write({"step": 1})
    MetricsLog(None).rewind(0)
    MetricsLog(tmp_path).rewind(0)

    assert list(tmp_path.iterdir()) == []
