"""predict --redact: nothing that was blacked out is written anywhere; what is not read is empty."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xlsxwriter
from python_calamine import CalamineWorkbook

import tidybert.inference.redaction as module
from tidybert.cli.main import run as shell
from tidybert.errors import DataError, UsageError
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.finetuning.run_finetuning import run_finetuning
from tidybert.inference.redaction import Redactor
from tidybert.tasks.tags import patterns
from tidybert.tasks.tags.tag_files import TaggedExample
from tidybert.tasks.tags.tagging import Tagging

COLOURS = ("red", "green", "blue", "white")
TEXT = "the old red and under a\tblue cow "


@pytest.fixture(scope="module")
def colour_run(
    tiny_model: Path,
    toy_examples: Callable[..., Any],
    toy_arguments: Callable[..., Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A RUN that tags colours as entities."""

    def examples(count: int, seed: int) -> list[TaggedExample]:
        pairs = [(tuple(one.text.split()), one.row) for one in toy_examples(count, seed)]
        return [
            TaggedExample(
                words, tuple("B-colour" if word in COLOURS else "O" for word in words), at
            )
            for words, at in pairs
        ]

    train, dev = examples(96, 0), examples(32, 1)
    run = tmp_path_factory.mktemp("colours") / "run"
    arguments = toy_arguments(num_train_epochs=8)
    task = Tagging.from_examples(train)
    run_finetuning(
        FinetuningJob(task, tiny_model, train, dev, arguments, max_seq_length=12, out=run)
    )
    return run


def redacted(capsys: Any, *words: object) -> tuple[int, str, str]:
    status = shell(["predict", *map(str, words), "--redact"])
    out, err = capsys.readouterr()
    return status, out, err


def test_a_long_text_is_read_to_its_end(colour_run: Path) -> None:
    text = TEXT * 9

    (found,) = Redactor(colour_run, redact_with="[{type}_{number}]").redact([text])

    wanted = text.replace("red", "[colour_1]").replace("blue", "[colour_2]")
    assert found.text == wanted
    assert len(found.entities) == 18
    assert {one["type"] for one in found.entities} == {"colour"}
    assert all(one["score"] is not None and 0 < one["score"] <= 1 for one in found.entities)
    assert not any("text" in one for one in found.entities)


def test_columns_of_a_csv_in_place(colour_run: Path, tmp_path: Path, capsys: Any) -> None:
    given, out = tmp_path / "in.csv", tmp_path / "out.csv"
    given.write_text('id;text;title\n1;"a red; cow";blue\n2;"";the green cow\n')

    status, _, err = redacted(capsys, colour_run, given, "--out", out)

    assert status == 0
    assert out.read_text("utf-8-sig").splitlines() == [
        "id;text;title",
        '1;"a [colour]; cow";blue',
        "2;;the green cow",
    ]
    assert f"{out}: 2 rows, redacted: colour 1" in err
    assert "not redacted: id, title; --redact-columns takes them too" in err
    out.unlink()
    assert redacted(capsys, colour_run, given, "--out", out, "--redact-columns", " title,")[0] == 0
    assert [
        row["title"] for row in csv.DictReader(out.open(encoding="utf-8-sig"), delimiter=";")
    ] == [
        "[colour]",
        "the [colour] cow",
    ]


def test_a_sheet_and_json_lines_in_place(colour_run: Path, tmp_path: Path, capsys: Any) -> None:
    book, lines = tmp_path / "in.xlsx", tmp_path / "in.jsonl"
    with xlsxwriter.Workbook(str(book)) as made:
        sheet = made.add_worksheet()
        for number, row in enumerate((["text", "n", "", ""], ["a red cow", 7, "x", "y"])):
            sheet.write_row(number, 0, row)
    lines.write_text('{"n": [1], "text": "a red cow"}\n{"text": null}\n')

    assert redacted(capsys, colour_run, book, "--out", tmp_path / "out.xlsx")[0] == 0
    assert redacted(capsys, colour_run, lines)[1] == (
        '{"n": [1], "text": "a [colour] cow"}\n{"text": null}\n'
    )

    rows = CalamineWorkbook.from_path(str(tmp_path / "out.xlsx")).get_sheet_by_index(0).to_python()
    assert rows[1][0] == "a [colour] cow"
    assert rows[1][2:] == ["x", "y"]


def test_nothing_blacked_out_is_written_anywhere(
    colour_run: Path, tmp_path: Path, capfd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    given = tmp_path / "in.csv"
    given.write_text("text\n" + "the green cow and white hen\n" * 80)
    written = bytearray()
    real = module.Redactor.redact

    def stops(self: Redactor, texts: Any) -> Any:
        for each in folder.iterdir():
            written.extend(each.read_bytes())
        if len(texts) > 16:
            raise KeyboardInterrupt
        return real(self, texts)

    monkeypatch.setattr(module.Redactor, "redact", stops)
    out = folder / "out.csv"
    arguments = ["predict", str(colour_run), str(given), "--redact", "--verbose", "--out", str(out)]

    status = shell(arguments)
    parts = [each for each in folder.iterdir() if each.suffix != ".csv"]
    for each in folder.iterdir():
        written.extend(each.read_bytes())
    monkeypatch.setattr(module.Redactor, "redact", real)

    assert status != 0
    assert parts
    assert shell([*arguments, "--resume"]) == 0
    assert out.read_text("utf-8-sig") == "text\n" + "the [colour] cow and [colour] hen\n" * 80
    shown = capfd.readouterr()
    written.extend(f"{shown.out}{shown.err}".encode() + out.read_bytes())
    assert b"[colour]" in written
    assert b"green" not in written
    assert b"white" not in written


FAULTS = {
    "a number": ('{"text": "a red cow"}\n{"text": 4711}\n', "jsonl"),
    "half a character": ('{"text": "a red cow"}\n{"text": "the blue \\ud800 cow"}\n', "jsonl"),
    "no JSON": ('{"text": "a red cow"}\n{"text": "the blue cow\n', "jsonl"),
    "an unknown word": ('{"text": "a red cow"}\n{"text": "the blue qqq cow"}\n', "jsonl"),
    "too many cells": ("text\na red cow\nthe blue cow,green\n", "csv"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_cannot_be_read_is_empty_counted_and_an_error(
    fault: str, colour_run: Path, tmp_path: Path, capsys: Any
) -> None:
    content, suffix = FAULTS[fault]
    given = tmp_path / f"in.{suffix}"
    given.write_text(content)

    status, out, err = redacted(capsys, colour_run, given)

    assert status == 1
    assert list(map(json.loads, out.splitlines())) == [{"text": "a [colour] cow"}, {"text": None}]
    line = 3 if suffix == "csv" else 2
    assert "1 row of 2 could not be read, and the cells there are empty; the first is line" in err
    assert err.rstrip().endswith(f"line {line}")
    for word in ("blue", "green", "4711"):
        assert word not in out + err


def test_an_answer_that_is_not_finite_is_not_read(
    colour_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    redactor = Redactor(colour_run)
    predictor: Any = redactor.predictor
    real = predictor.examine

    def broken(examples: Any, **how: Any) -> Any:
        if len(examples) > 1:
            raise DataError("the batch with the red cow failed")
        answers = real(examples, **how)
        if "blue" in examples[0].words:
            answers.outputs[0][1] = np.nan
        return answers

    monkeypatch.setattr(predictor, "examine", broken)

    found = redactor.redact(["a red cow", "a blue cow", 7, "a hen"])

    assert [each.text for each in found] == ["a [colour] cow", None, None, "a hen"]


def test_patterns_need_no_run(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given = tmp_path / "in.txt"
    given.write_text("write to a@b.org\n\nor not\n")
    wanted = ["write to [EMAIL]", "", "or not"]

    for words in (("-", given), (given,)):
        status, out, _ = redacted(capsys, *words, "--patterns", "email,iban")
        assert status == 0
        assert [json.loads(line)["text"] for line in out.splitlines()] == wanted
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given.read_bytes())))
    status, out, _ = redacted(capsys, "-", "--patterns", "email")
    assert [json.loads(line)["text"] for line in out.splitlines()] == wanted
    assert redacted(capsys, "-", "--patterns", "email", "--input", "a@b.org")[1] == (
        '{"text": "[EMAIL]"}\n'
    )


def test_a_run_and_patterns_together(colour_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(patterns._FINDERS, "email", lambda text: [(text.index("cow"), len(text))])

    (found,) = Redactor(colour_run, patterns="email").redact(["a red cow"])

    assert found.text == "a [colour] [EMAIL]"
    assert found.entities[1] == {"type": "EMAIL", "start": 11, "end": 18, "score": None}


def test_columns_without_a_header_are_numbers(tmp_path: Path, capsys: Any) -> None:
    given = tmp_path / "in.csv"
    given.write_text("1,a@b.org\n2,c\n")

    status, out, err = redacted(capsys, given, "--patterns", "email", "--text", 1)

    assert status == 0
    assert list(map(json.loads, out.splitlines())) == [
        {"0": "1", "1": "[EMAIL]"},
        {"0": "2", "1": "c"},
    ]
    status, out, err = redacted(capsys, given, "--patterns", "email", "--text", 5)
    assert status == 2
    assert "there is no such column" in err
    for content, said in (
        ("a@b.org,a@b.org,x\n", "columns 0 and 1, counted from 0, have one name"),
        ('"a@b.org\n', "a quote is never closed"),
    ):
        (tmp_path / "bad.csv").write_text(content)
        status, out, err = redacted(capsys, tmp_path / "bad.csv", "--patterns", "email")
        assert status != 0
        assert said in " ".join(err.split())
        assert "a@b" not in out + err
    status, out, err = redacted(capsys, given, "--patterns", "email")
    assert status == 2
    assert "cannot tell which column holds the text" in err
    assert "a@b" not in out + err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["RUN", "--redact"], "--redact is for a RUN that tags entities"),
        (["RUN", "--redact", "--top-k", "1"], "--redact and --top-k do not go together"),
        (["RUN", "--redact", "--cluster", "local"], "--redact and --cluster do not go together"),
        (["-", "--redact"], "needs a RUN that tags entities, or patterns"),
        (["RUN", "--redact-columns", "x"], "--redact-columns needs --redact"),
        (["-", "--redact", "--patterns", "iban", "--redact-columns", "x"], "no such column"),
    ],
)
def test_what_does_not_go_is_said(words: list[str], said: str, tiny_run: Path, capsys: Any) -> None:
    given = [str(tiny_run) if word == "RUN" else word for word in words]

    assert shell(["predict", *given, "--input", "a cow"]) == 2

    assert said in " ".join(capsys.readouterr().err.split())


def test_from_python_too() -> None:
    with pytest.raises(UsageError, match="patterns='email,iban,card'"):
        Redactor()
    assert Redactor(patterns=["email"]).redact(["a@b.de", ""])[0].text == "[EMAIL]"
