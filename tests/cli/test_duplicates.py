"""``tidybert duplicates`` in the shell."""

import csv
import io
from pathlib import Path
from typing import Any

import pytest

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


@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_file_of_one_text_is_one_group(
    count: int, tmp_path: Path, tiny_model: Path, capsys: Any
) -> None:
    path = tmp_path / "texts.csv"
    path.write_text("text\n" + "the old cat\n" * count)

    assert run(["duplicates", str(path), "--model", str(tiny_model)]) == 0

    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["group"] for row in rows] == ["1"] * count
    assert {row["cosine"] for row in rows} == {"1.0000"}


def test_many_unknown_tokens_are_told_in_every_command(
    tmp_path: Path, tiny_model: Path, tiny_run: Path, capsys: Any
) -> None:
    """A few are not: there is an emoji in every file of messages."""
    thai, emoji = tmp_path / "thai.csv", tmp_path / "emoji.csv"
    labels = ["animal", "colour"] * 4
    foreign = [f"{word},{label}\n" for word, label in zip("กขคงจฉชซ", labels, strict=True)]
    common = [f"the red cat was near {at},{label}\n" for at, label in enumerate(labels * 4)]
    thai.write_text("text,label\n" + "".join(foreign), encoding="utf-8")
    known = [one.translate({ord(digit): None for digit in "0123456789"}) for one in common]
    emoji.write_text("text,label\nthe cat \U0001f600,animal\n" + "".join(known), encoding="utf-8")
    model, short = str(tiny_model), ["--max-seq-length", "16"]
    train = ["finetune", "classify", model, "--num-train-epochs", "0", "--head-start", "random"]
    train += [*short, "--train"]
    for at, file in enumerate((thai, emoji)):
        name = str(file)
        for line in (
            ["duplicates", name, "--model", model],
            ["check", name, "--model", model, *short],
            ["index", model, name, "--out", str(tmp_path / f"index-{at}")],
            ["embed", model, name, "--out", str(tmp_path / f"{at}.npy")],
            ["predict", str(tiny_run), name],
            ["evaluate", str(tiny_run), name],
            [*train, name, "--out", str(tmp_path / f"run-{at}")],
        ):
            assert run(line) == 0, line
            shown = capsys.readouterr()
            told = " ".join((shown.out + shown.err).split())
            expected = "100.0% of the tokens are [UNK]: the vocabulary has nothing for their"
            assert (expected in told) == (file == thai), line
            assert ("of the tokens are" in told) == (file == thai), line
