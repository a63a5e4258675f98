"""``tidybert next-sentence``: two sentences, files of pairs, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidybert.cli.main import run as shell
from tidybert.inference.pretraining_heads import NextSentencePredictor


def test_next_sentence_of_two(masked_model: str, capsys) -> None:
    pair = ["we saw a hen", "the dog was old"]
    expected = NextSentencePredictor(masked_model).predict(*([each] for each in pair))
    assert shell(["next-sentence", masked_model, *pair]) == 0
    assert capsys.readouterr().out == (
        f"{expected[0]['follows']:.4f} is the probability that B follows A\n"
    )
    assert shell(["next-sentence", masked_model, *pair, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == expected[0]


def test_next_sentence_of_a_file(masked_model: str, tmp_path: Path, capsys) -> None:
    file = tmp_path / "pairs.csv"
    file.write_text("sentence1,sentence2\nwe saw a hen,the dog\na old new cow and,red red\n")
    command = ["next-sentence", masked_model, "--file", str(file)]
    assert shell([*command, "--max-seq-length", "9"]) == 0

    out, err = capsys.readouterr()
    lines = [json.loads(line) for line in out.splitlines()]
    assert [each["num_tokens"] for each in lines] == [9, 10]
    assert "1 of 2 pairs were cut to 9 tokens" in err
    assert "--text-pair sentence2" in err
    assert shell([*command, "--text", "sentence1"]) == 1
    assert "with --text-pair" in capsys.readouterr().err


def test_each_pair_of_a_stream_is_answered_before_the_next(
    masked_model: str, conversation: Callable[..., Any]
) -> None:
    words = ["--file", "-", "--format", "jsonl", "--text", "a", "--text-pair", "b"]
    process, ask = conversation("next-sentence", masked_model, *words)
    for text in ("we saw a hen", "a red dog", "the old cow"):
        assert 0 <= ask(json.dumps({"a": text, "b": "the dog"}))["follows"] <= 1
    process.communicate(timeout=60)

    assert process.returncode == 0


def test_tidybert_small_answers_where_no_model_is_named(
    masked_model: str, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    pair = ["we saw a hen", "the dog was old"]
    assert shell(["next-sentence", masked_model, *pair, "--json"]) == 0
    expected = capsys.readouterr().out
    monkeypatch.setattr("tidybert.cli.commands.texts.DEFAULT_MODEL", masked_model)
    assert shell(["next-sentence", *pair, "--json"]) == 0

    assert capsys.readouterr().out == expected


@pytest.mark.parametrize("arguments", [[], ["a"], ["a", "b", "--file", "f.csv"]])
def test_next_sentence_wants_a_pair(masked_model: str, arguments: list[str], capsys) -> None:
    assert shell(["next-sentence", masked_model, *arguments]) == 2

    assert "expected two sentences, A and B, or --file with pairs" in capsys.readouterr().err
