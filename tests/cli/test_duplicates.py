"""``tidybert duplicates`` in the shell."""

import csv
import io
from pathlib import Path
from typing import Any

from tidybert.cli.main import run


def test_groups_are_printed_as_csv(tmp_path: Path, tiny_model: Path, capsys: Any) -> None:
    path = tmp_path / "texts.csv"
    texts = ["a red cat", "the old dog", "A red cat", "a blue cow was near", "the old DOG"]
    path.write_text("text\n" + "\n".join(texts) + "\n")

    assert run(["duplicates", str(path), "--model", str(tiny_model), "--threshold", "0.999"]) == 0

    shown = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(shown.out)))
    assert [(row["group"], row["row"], row["nearest"]) for row in rows] == [
        ("1", "2", "4"),
        ("1", "4", "2"),
        ("2", "3", "6"),
        ("2", "6", "3"),
    ]
    assert "4 of 5 texts are in 2 groups" in shown.err

    out = tmp_path / "groups.csv"
    words = ["--model", str(tiny_model), "--threshold", "0.999", "--out", str(out)]
    assert run(["duplicates", str(path), *words]) == 0
    assert out.read_text() == shown.out


def test_pairs_are_a_mistake(tmp_path: Path, tiny_model: Path, capsys: Any) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("sentence1,sentence2\na cat,a dog\n")

    assert run(["duplicates", str(path), "--model", str(tiny_model)]) == 2
    assert "has pairs of texts: name the column to compare with --text" in capsys.readouterr().err
    assert run(["duplicates", str(path), "--threshold", "1.5"]) == 2
