"""The table of students beside their teacher: means over seeds, and the ratio of the speeds."""

import json
from pathlib import Path

from benchmarks.harness.script import Results
from benchmarks.scores.compare import ALONE, TAUGHT, TEACHER, distill_table


def test_the_table_has_means_over_seeds_and_the_ratio_of_speeds(tmp_path: Path) -> None:
    lines = [
        {"data": "SST-2", "side": side, "seed": seed, "accuracy": accuracy + seed / 100}
        for side, accuracy in ((TEACHER, 0.9), (ALONE, 0.8), (TAUGHT, 0.85))
        for seed in (0, 1)
    ]
    lines.append({"data": "SST-2", "side": "speed", TEACHER: 20.0, ALONE: 45.0, TAUGHT: 44.0})
    file = tmp_path / "lines.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)) + "\n")

    assert distill_table(Results(file), (TEACHER, ALONE, TAUGHT)) == [
        "| data | score | teacher | labels alone | teacher too | times as fast | seeds |",
        "|---|---|---|---|---|---|---|",
        "| SST-2 | accuracy | 90.5 ± 0.7 | 80.5 ± 0.7 | 85.5 ± 0.7 | 2.25 | 2 |",
    ]
