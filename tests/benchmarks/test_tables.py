"""Lines that are measured once, and tables between the marks of a page."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.harness.tables import Results, markdown, percent, show


def test_a_key_is_measured_once(tmp_path: Path) -> None:
    path, measured = tmp_path / "out.jsonl", iter([0.5, 0.75])

    for _ in range(2):
        results = Results(path)
        for seed in (1, 2):
            key = {"data": "TREC", "seed": seed}
            results.take(key, lambda: {"score": next(measured)})

    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["seed"], line["score"]) for line in lines] == [(1, 0.5), (2, 0.75)]
    assert lines[0]["machine"]["cores"] >= 1
    assert lines[0]["versions"]["torch"]
    assert results.where(seed=2) == lines[1:]


@pytest.mark.parametrize(
    ("shares", "expected"), [([], ""), ([0.5], "50.0"), ([0.6, 0.8], "70.0 ± 14.1")]
)
def test_percent_has_the_deviation_of_the_sample(shares: list[float], expected: str) -> None:
    assert percent(shares) == expected


def test_only_what_stands_between_the_marks_changes(page: Callable[[str], Path]) -> None:
    written = page("few")

    show(markdown(["a", "b"], [["1", "2"]]), written, "few")

    table = "| a | b |\n|---|---|\n| 1 | 2 |"
    assert written.read_text() == f"before\n<!-- few -->\n{table}\n<!-- /few -->\nafter\n"
    with pytest.raises(SystemExit, match="it has no <!-- other -->"):
        show([], written, "other")
