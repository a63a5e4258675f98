"""``tidybert predict`` and ``evaluate``: order, streams, files, and what is refused."""

import io
import json
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidybert.cli.main import run as shell
from tidybert.inference.predictor import Predictor

Converse = Callable[..., tuple[Any, Callable[[str], Any]]]


def lines_of(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_line_of_text_is_a_line_of_json_in_the_order_given(
    tiny_run: Path, tmp_path: Path, capsys
) -> None:
    texts = ["a red near the old", "cat", "we saw the green and the", "the dog was under the"] * 9
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(texts) + "\n")

    assert shell(["predict", str(tiny_run), str(file)]) == 0

    answers = lines_of(capsys.readouterr().out)
    assert [one["label"] for one in answers] == ["colour", "animal", "colour", "animal"] * 9
    first = answers[0]
    assert set(first) == {"label", "score", "scores", "num_tokens", "truncated"}
    assert first["score"] == max(first["scores"].values())
    assert sum(first["scores"].values()) == pytest.approx(1)
    assert first["num_tokens"] == 7


def test_a_long_text_is_cut_and_a_blank_one_told(tiny_run: Path, tmp_path: Path, capsys) -> None:
    file = tmp_path / "texts.txt"
    file.write_text("red " * 40 + "\nred\n \n")

    assert shell(["predict", str(tiny_run), str(file)]) == 0

    out, err = capsys.readouterr()
    assert [(one["truncated"], one["num_tokens"]) for one in lines_of(out)] == [
        (True, 42),
        (False, 3),
        (False, 2),
    ]
    assert "1 of 3 examples were cut to --max-seq-length" in err
    assert f"warning: {file} has 1 blank text" in err


def test_each_line_of_a_stream_is_answered_before_the_next(
    tiny_score_run: Path, conversation: Converse
) -> None:
    process, ask = conversation("predict", str(tiny_score_run), "-")
    for text in ("a red", "a cat", "a dog", "a hen"):
        assert isinstance(ask(text)["value"], float)

    rest, _ = process.communicate("a cat\na dog\n", timeout=60)

    assert len(rest.splitlines()) == 2
    assert process.returncode == 0


def test_ctrl_c_ends_what_waits_for_a_line(tiny_score_run: Path, conversation: Converse) -> None:
    process, ask = conversation("predict", str(tiny_score_run), "-")
    ask("a red")

    process.send_signal(signal.SIGINT)

    # Its standard input is still open.
    assert process.wait(timeout=60) == 130
    assert process.stderr is not None
    assert "interrupted by Ctrl-C" in process.stderr.read().splitlines()[-1]


def test_a_bad_row_of_a_stream_is_told_after_the_answers_before_it(
    tiny_run: Path, capsys, monkeypatch
) -> None:
    rows = ['{"text": "a red"}', '{"text": "a cat"}', '{"text": "a dog"}', '{"text": 7}', "never"]
    stream = io.BytesIO("\n".join(rows).encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(stream)))

    assert shell(["predict", str(tiny_run), "-"]) == 1

    out, err = capsys.readouterr()
    assert [one["label"] for one in lines_of(out)] == ["colour", "animal", "animal"]
    assert "-:4: " in err


def test_a_file_appears_whole_or_not_at_all(tiny_run: Path, tmp_path: Path, capsys) -> None:
    good, bad, out = tmp_path / "good.jsonl", tmp_path / "bad.jsonl", tmp_path / "out.jsonl"
    good.write_text('{"text": "a red"}\n{"text": "a cat"}\n')
    bad.write_text('{"text": "a red"}\n{"text": 7}\n')

    assert shell(["predict", str(tiny_run), str(bad), "--out", str(out)]) == 1
    assert f"{bad}: 1 row cannot be read" in capsys.readouterr().err
    assert not out.exists()
    assert shell(["predict", str(tiny_run), str(good), "--out", str(out)]) == 0
    assert len(lines_of(out.read_text())) == 2
    assert shell(["predict", str(tiny_run), str(good), "--out", str(out)]) == 2
    assert "is there already" in capsys.readouterr().err


def test_a_stopped_run_goes_on_with_the_same_bytes(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    file, whole, out = tmp_path / "texts.txt", tmp_path / "whole", tmp_path / "out"
    file.write_text("".join(f"a red {'cat ' * (number % 7)}\n" for number in range(70)))
    command = ["predict", str(tiny_run), str(file), "--out"]
    assert shell([*command, str(whole)]) == 0
    predictions = Predictor._predictions

    def stop(self: Predictor, examples: list[Any]) -> Any:
        if len(examples) == 16:
            raise KeyboardInterrupt
        return predictions(self, examples)

    with monkeypatch.context() as patch:
        patch.setattr(Predictor, "_predictions", stop)
        assert shell([*command, str(out)]) == 130
    assert "the same command with --resume continues" in capsys.readouterr().err
    assert not out.exists()
    assert shell([*command, str(out)]) == 2
    assert "--resume continues it" in capsys.readouterr().err
    assert shell([*command, str(out), "--resume"]) == 0

    assert out.read_bytes() == whole.read_bytes()
    assert sorted(tmp_path.iterdir()) == sorted([file, whole, out])
    assert shell([*command[:-1], "--resume"]) == 2
    assert "--resume needs --out" in capsys.readouterr().err


def test_evaluate_shows_each_class_and_the_confusions(
    tiny_run: Path, toy_file: Callable[..., Path], capsys
) -> None:
    assert shell(["evaluate", str(tiny_run), str(toy_file("dev.csv", 64, seed=1))]) == 0

    out = capsys.readouterr().out
    for word in ("accuracy", "macro_f1", "matthews", "animal", "colour"):
        assert word in out
    assert max(map(len, out.splitlines())) <= 80


def test_evaluate_refuses_a_label_that_the_model_does_not_know(
    tiny_run: Path, tmp_path: Path, capsys
) -> None:
    file = tmp_path / "dev.csv"
    file.write_text("text,label\na red,colour\na cat,beast\n")

    assert shell(["evaluate", str(tiny_run), str(file)]) == 1

    err = capsys.readouterr().err
    assert "'beast'" in err
    assert "animal, colour" in err


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_a_model_without_a_head_is_refused(
    command: str, tiny_model: Path, toy_file: Callable[..., Path], capsys
) -> None:
    assert shell([command, str(tiny_model), str(toy_file("dev.csv", 4))]) == 1

    assert "has no head" in capsys.readouterr().err


def test_a_text_of_the_command_line_is_answered(tiny_run: Path, capsys) -> None:
    assert shell(["predict", str(tiny_run), "--input", "a red near the old"]) == 0

    (answer,) = lines_of(capsys.readouterr().out)
    assert answer["label"] == "colour"


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["my invoice is wrong"], 1, "no such file; to answer a text: tidybert predict"),
        (["my invoice is wrong"], 1, "--input 'my invoice is wrong'"),
        (["a.csv", "--input", "a red"], 2, "give one of them"),
        (["--input", "a", "--input", "b"], 2, "--input is given twice; this model needs it once"),
        (["--input", "a", "--top-k", "3"], 2, "--top-k is 3; expected 1 to 2"),
    ],
)
def test_what_is_wrong_with_a_text_or_its_flags(
    words: list[str], status: int, message: str, tiny_run: Path, capsys
) -> None:
    assert shell(["predict", str(tiny_run), *words]) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err


@pytest.mark.parametrize(
    ("model", "given", "said"),
    [
        ("pairs", 1, "given once; this model needs it twice: the first text of the pair, then"),
        ("pairs", 3, "given 3 times; this model needs it twice"),
        ("questions", 1, "given once; this model needs it twice: the question, then the text"),
        ("choices", 1, "given once; this model needs it 3 times or more: the context, then"),
    ],
)
def test_an_input_too_few_or_too_many_says_how_many(
    model: str, given: int, said: str, served: dict[str, str], capsys
) -> None:
    assert shell(["predict", served[model], *["--input", "a"] * given]) == 2
    assert said in capsys.readouterr().err


def test_top_k_keeps_the_likeliest_scores(
    tiny_run: Path, tiny_score_run: Path, capsys, tmp_path: Path
) -> None:
    assert shell(["predict", str(tiny_run), "--input", "a red", "--top-k", "1"]) == 0
    (answer,) = lines_of(capsys.readouterr().out)
    assert answer["scores"] == {"colour": answer["score"]}
    out = tmp_path / "out.jsonl"
    command = ["predict", str(tiny_run), "--input", "a hen", "--top-k", "2", "--out", str(out)]
    assert shell(command) == 0
    assert list(json.loads(out.read_text())["scores"]) == ["animal", "colour"]
    assert shell(["predict", str(tiny_score_run), "--input", "a", "--top-k", "1"]) == 2
    assert "models that classify" in capsys.readouterr().err


def test_a_terminal_gets_a_table(
    tiny_run: Path, tiny_score_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    file = tmp_path / "texts.txt"
    file.write_text("a red\nthe old cat \x1b[2J and a hen\n" + "the dog was near the cow " * 9)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")

    assert shell(["predict", str(tiny_run), str(file)]) == 0
    heading, _, first, second, *third = capsys.readouterr().out.splitlines()
    assert heading.split() == ["label", "score", "text"]
    assert first.split() == ["colour", first.split()[1], "a", "red"]
    assert second.rstrip().endswith("the old cat \\x1b[2J and a hen")
    assert max(map(len, [heading, *third])) <= 80
    assert " ".join(third).count("near") > 5

    assert shell(["predict", str(tiny_run), "--input", "a hen", "--top-k", "2"]) == 0
    *_, first, second = capsys.readouterr().out.splitlines()
    assert (first.split()[0], second.split()[0]) == ("animal", "colour")

    assert shell(["predict", str(tiny_score_run), "--input", "a hen"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["value", "text"]

    assert shell(["predict", str(tiny_run), "--input", "a hen", "--json"]) == 0
    assert lines_of(capsys.readouterr().out)[0]["label"] == "animal"


def test_a_file_of_answers_ends_with_how_fast(tiny_run: Path, tmp_path: Path, capsys) -> None:
    file, out = tmp_path / "texts.txt", tmp_path / "out.jsonl"
    file.write_text("a red\n" * 9 + "a red " * 40)

    assert shell(["predict", str(tiny_run), str(file), "--out", str(out)]) == 0

    assert re.search(
        r"out\.jsonl: 10 texts in 0:0\d \([\d,]+ texts/s\), 1 truncated$",
        capsys.readouterr().err,
        re.MULTILINE,
    )
