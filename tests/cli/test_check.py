"""``tidybert check``: from a file to a page and back to the labels, and its exit status."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import suggested

from tidybert.checking import label_check as out_of_fold
from tidybert.cli.commands.data import _beginning
from tidybert.cli.main import run as shell

SHORT = ["--max-seq-length", "16"]
QUICK = ["--max-steps", "1", "--head-start", "random"]


@pytest.fixture(autouse=True)
def few_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out_of_fold, "FOLDS", 2)


def test_what_a_check_writes_corrects_the_labels_of_a_training(
    tiny_model: Path, toy_file: Callable[..., Path], tmp_path: Path, capsys
) -> None:
    train, dev, out = toy_file("a.csv", 40), toy_file("b.csv", 9, seed=1), tmp_path / "out"
    given = ["check", str(train), "--model", str(tiny_model), *SHORT]

    assert shell([*given, "--dev", str(dev), "--out", str(out)]) == 0

    printed, notes = capsys.readouterr()
    assert "40 examples to train, 9 to evaluate" in printed
    assert "labels that may be wrong" in printed
    assert max(map(len, printed.splitlines())) <= 80
    assert "49 examples in 0:" in notes
    assert (out / "check.html").is_file()
    assert f"--dev {dev} {' '.join(SHORT)} --corrections {out}/corrections.csv" in notes
    assert shell([*given, "--out", str(out)]) == 2
    assert "is there already" in capsys.readouterr().err

    path = out / "corrections.csv"
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    rows[0]["correction"] = {"animal": "colour", "colour": "animal"}[rows[0]["label"]]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)

    assert shell([*suggested(notes, RUN=tmp_path / "run"), *QUICK]) == 0

    notes = capsys.readouterr().err
    assert f"1 label changed; it names {len(rows)} examples" in notes
    record = json.loads((tmp_path / "run/arguments.json").read_text())
    assert record["corrections"] == str(path)
    assert record["record"]["files"]["corrections"]["sha256"]


def test_a_check_that_finds_nothing_asks_for_no_corrections(
    tiny_model: Path, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(out_of_fold, "suspected_label_errors", lambda *_, **__: [])
    file, out = tmp_path / "a.csv", tmp_path / "out"
    words = ["the red cat", "an old dog", "green", "blue sky", "dog and cat", "a white bird"]
    lines = [f"{text};{at % 2};{(at + 1) % 2}\n" for at, text in enumerate(words)]
    file.write_text("text;animal;colour\n" + "".join(lines) + "no label;0;0\n")
    how = ["--soft", "--label", "animal,colour", "--skip-bad-rows", *SHORT]

    assert shell(["check", str(file), "--model", str(tiny_model), *how, "--out", str(out)]) == 0

    notes = capsys.readouterr().err
    assert "near" not in notes
    assert f"nothing to correct; next: tidybert finetune classify {tiny_model} --train" in notes
    assert "corrections" not in notes
    assert shell([*suggested(notes, RUN=tmp_path / "run"), *QUICK]) == 0


def test_errors_that_would_stop_a_training_are_exit_status_1(
    tiny_model: Path, tmp_path: Path, capsys
) -> None:
    path = tmp_path / "one.csv"
    path.write_text("text,label\na cat,animal\na dog,animal\n")
    given = ["check", str(path), "--model", str(tiny_model), *SHORT]

    assert shell([*given, "--json"]) == 1

    printed, notes = capsys.readouterr()
    assert "two classes" in json.loads(printed)["report"]["errors"][0]
    assert "error: these data cannot be trained on" in notes
    assert shell(given) == 1


def test_other_tasks_get_the_checks_alone(tiny_model: Path, tmp_path: Path, capsys) -> None:
    path = tmp_path / "people.conll"
    path.write_text("cat B-PER\nwas O\n\nred B-LOC\ndog O\n")

    assert shell(["check", str(path), "tag", "--model", str(tiny_model), *SHORT]) == 0
    assert "wrong labels: not for tag yet" in capsys.readouterr().out
    begin = ["finetune", "tag", str(tiny_model), "--train", str(path), *SHORT]
    assert shell([*begin, "--corrections", "a.csv", "--out", str(tmp_path / "run")]) == 2
    assert "--corrections is for classify, not for tag yet" in capsys.readouterr().err


def test_a_text_of_several_lines_begins_on_one() -> None:
    assert _beginning({"text": "\n\nHow do\n I pay?", "text_pair": None}) == "How do I pay?"
    assert _beginning({"text": "a", "text_pair": "b\tc"}) == "a / b c"
    assert _beginning({"text": "x" * 300, "text_pair": None}).endswith("x…")
