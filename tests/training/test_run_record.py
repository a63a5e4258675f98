"""metrics.jsonl: lines appended, and taken back to a step."""

import json
import resource
from pathlib import Path

from tidybert.system.reporter import Reporter
from tidybert.training.trackers import MetricsLog


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


def test_a_full_disk_ends_no_log_and_loses_no_line(tmp_path: Path) -> None:
    said: list[str] = []
    log = MetricsLog(tmp_path, reporter=Reporter(note=said.append, spell=str))
    log.write({"step": 1})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The file takes three more bytes, so that a part of a line is written.
    size = (tmp_path / "metrics.jsonl").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 3, before[1]))
    try:
        log.write({"step": 2})
        log.write({"step": 3})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert len(said) == 1
    assert "metrics.jsonl cannot be written: File too large" in said[0]
    assert "The training continues" in said[0]

    log.write({"step": 4})

    assert steps_in(tmp_path / "metrics.jsonl") == [1, 2, 3, 4]
    assert "can be written again, and has all 3 lines that waited" in said[1]


def test_a_note_that_cannot_be_written_ends_nothing() -> None:
    def note(_line: str) -> None:
        raise OSError("the disk is full")

    Reporter(note).tell("step 3")


def test_lines_of_a_damaged_log_are_counted_and_a_number_is_never_nan(tmp_path: Path) -> None:
    told: list[str] = []
    log = MetricsLog(tmp_path, reporter=Reporter(note=told.append, spell=str))
    log.write({"step": 1, "loss": float("nan")})
    good = log.path.read_bytes() if log.path else b""
    assert good == b'{"step": 1, "loss": null}\n'
    damaged = [b'{"step": NaN}', b"[1]", b"\xff", b'{"step": "2"}', b"[" * 5000, b'{"step": 9}']
    (tmp_path / "metrics.jsonl").write_bytes(b"\n".join([*damaged, good, b'{"step": 2, "lo']))

    log.rewind(3)

    assert (tmp_path / "metrics.jsonl").read_bytes() == good
    (line,) = told
    assert "metrics.jsonl: 6 lines cannot be read and are dropped" in line
