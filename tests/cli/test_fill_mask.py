"""``tidybert fill-mask``: the table, JSON, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from tidybert.cli.main import run as shell
from tidybert.inference.language_model import TextScorer
from tidybert.inference.pretraining_heads import MaskFiller, NextSentencePredictor


def test_a_table_with_the_text_filled_in(masked_model: str, capsys) -> None:
    text = "we saw a [MASK] hen near the old dog"
    assert shell(["fill-mask", masked_model, text, "--top-k", "3"]) == 0

    out = capsys.readouterr().out
    (answer,) = MaskFiller(masked_model).fill([text], top_k=3)
    heading, _, *rows = out.splitlines()
    assert heading.split() == ["word", "probability", "text"]
    assert len(rows) == 3
    for row, each in zip(rows, answer["masks"][0]["words"], strict=True):
        assert row.split() == [
            each["word"],
            f"{each['probability']:.4f}",
            *each["text"].split(),
        ]
    assert max(map(len, out.splitlines())) <= 80


def test_several_texts_and_masks(masked_model: str, capsys) -> None:
    texts = ["a [MASK] [MASK]", "the [MASK]"]
    assert shell(["fill-mask", masked_model, *texts, "--among", "red, hen"]) == 0

    out = capsys.readouterr().out
    for expected in ("[MASK] 1 of 2", "[MASK] 2 of 2", "a red [MASK]", "a [MASK] hen", "the red"):
        assert expected in out
    assert out.count("probability") == 3
    filled = MaskFiller(masked_model).fill(texts, among=["red", "hen"])[0]["filled"]
    assert f"\nall filled in: {filled}\n" in out
    alone = []
    for text in texts:
        assert shell(["fill-mask", masked_model, text, "--among", "red, hen"]) == 0
        alone.append(capsys.readouterr().out)
    assert out == "\n".join(alone)


def test_a_long_text_is_shown_around_the_word(masked_model: str, capsys) -> None:
    text = "we saw the old and the new cow [MASK] was under the old and the new hen"
    assert shell(["fill-mask", masked_model, text, "--top-k", "1"]) == 0

    out = capsys.readouterr().out
    assert "…" not in out
    assert max(map(len, out.splitlines())) <= 80
    text = "a" * 100 + " [MASK] " + "b" * 100
    assert shell(["fill-mask", masked_model, text, "--top-k", "1"]) == 0
    flat = "".join(capsys.readouterr().out.split())
    assert f"…{'a' * 59}" in flat
    assert flat.endswith("b…")


def test_json_is_a_line_a_text(masked_model: str, capsys) -> None:
    texts = ["a [MASK]", "the [MASK] and [MASK]"]
    assert shell(["fill-mask", masked_model, *texts, "--json"]) == 0

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    expected = MaskFiller(masked_model).fill(texts)
    for line, answer in zip(lines, expected, strict=True):
        assert line.keys() == answer.keys()
        assert line["filled"] == answer["filled"]
        assert [mask["start"] for mask in line["masks"]] == [
            mask["start"] for mask in answer["masks"]
        ]
        assert line["masks"][0]["words"][0]["probability"] == pytest.approx(
            answer["masks"][0]["words"][0]["probability"], abs=1e-6
        )


def test_tidybert_small_fills_where_no_model_is_named(
    masked_model: str, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    assert shell(["fill-mask", masked_model, "a [MASK]", "the [MASK]", "--json"]) == 0
    expected = capsys.readouterr().out
    monkeypatch.setattr("tidybert.cli.commands.texts.DEFAULT_MODEL", masked_model)
    assert shell(["fill-mask", "a [MASK]", "the [MASK]", "--json"]) == 0

    assert capsys.readouterr().out == expected


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["a hen"], 1, "has no [MASK]"),
        (["a [MASK]", "--among", "red hen,dog"], 2, "'red hen' is 2 tokens of the vocabulary"),
        (["a [MASK]", "--top-k", "0"], 2, "--top-k is 0"),
        ([], 2, "TEXT"),
        (["a [MASK]", "--file", "-"], 2, "expected a TEXT with [MASK], or --file"),
    ],
)
def test_wrong_usage(
    masked_model: str, arguments: list[str], status: int, message: str, capsys
) -> None:
    assert shell(["fill-mask", masked_model, *arguments]) == status

    out, err = capsys.readouterr()
    assert out == ""
    assert message in err


def test_a_file_is_a_json_line_a_text(masked_model: str, tmp_path: Path, capsys) -> None:
    texts = ["a [MASK]", "the [MASK] and [MASK]", "we [MASK] the hen"] * 30
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(texts))
    assert shell(["fill-mask", masked_model, "--file", str(file), "--top-k", "2"]) == 0

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["text"] for line in lines] == texts
    expected = MaskFiller(masked_model).fill(texts[:3], top_k=2)
    assert [line["filled"] for line in lines[:3]] == [each["filled"] for each in expected]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("texts.txt", "a [MASK]\na hen\n", "line 2, 'a hen', has no [MASK]"),
        ("pairs.csv", "sentence1,sentence2\na [MASK],b\n", "a pair of texts"),
    ],
)
def test_a_file_names_the_line_that_cannot_be_filled(
    name: str, content: str, message: str, masked_model: str, tmp_path: Path, capsys
) -> None:
    file = tmp_path / name
    file.write_text(content)
    assert shell(["fill-mask", masked_model, "--file", str(file)]) == 1
    err = capsys.readouterr().err
    assert f"error: {file}: line 2" in err
    assert message in err


@pytest.mark.parametrize(
    ("words", "row", "stopped"),
    [
        (["fill-mask", "--file", "--top-k", "2"], "a [MASK] {}", (MaskFiller, "_fill")),
        (["next-sentence", "--file"], "a {}\tthe hen", (NextSentencePredictor, "predict")),
        (["score"], "a {}", (TextScorer, "_score")),
    ],
)
def test_a_stopped_file_of_answers_goes_on_with_the_same_bytes(
    words: list[str],
    row: str,
    stopped: tuple[type, str],
    masked_model: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys,
) -> None:
    file, whole, out = tmp_path / "texts.tsv", tmp_path / "whole", tmp_path / "out"
    rows = "".join(row.format("hen " * (number % 7)) + "\n" for number in range(100))
    file.write_text("sentence1\tsentence2\n" * ("\t" in row) + rows)
    if "\t" not in row:
        file = file.rename(tmp_path / "texts.txt")
    name, *more = words
    command = [name, masked_model, *more[:1], str(file), *more[1:], "--out"]
    assert shell([*command, str(whole)]) == 0
    answered = getattr(*stopped)

    def stop(self: Any, texts: list[Any], *arguments: Any) -> Any:
        if len(texts) == 16:
            raise KeyboardInterrupt
        return answered(self, texts, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(*stopped, stop)
        assert shell([*command, str(out)]) == 130
    assert not out.exists()
    assert shell([*command, str(out), "--resume"]) == 0

    assert out.read_bytes() == whole.read_bytes()
    assert len(whole.read_text().splitlines()) == 100
    assert f"{whole}: 100 texts in" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["fill-mask", "next-sentence"])
def test_a_model_without_the_head(command: str, tiny_model: Path, capsys) -> None:
    assert shell([command, str(tiny_model), "a [MASK]", "b [MASK]"]) == 1

    assert "its weights lack cls." in capsys.readouterr().err
