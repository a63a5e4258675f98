"""predict --out answers.csv or .xlsx: the columns of the input, and the answers beside them."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
import xlsxwriter
from python_calamine import CalamineWorkbook

from tidybert.cli.main import run as shell
from tidybert.files.reading import ReadOptions
from tidybert.files.text_files import read_examples
from tidybert.inference.predictor import Predictor
from tidybert.tasks.answer import Embedded, FoundEntity, Tagged
from tidybert.tasks.questions.question_files import read_questions


def rows_of(path: Path, delimiter: str = ",") -> list[dict[str, str]]:
    content = path.read_bytes()
    assert content.startswith(b"\xef\xbb\xbf")
    text = io.StringIO(content.decode("utf-8-sig"), newline="")
    return list(csv.DictReader(text, delimiter=delimiter))


def test_a_csv_has_the_columns_of_the_input_and_the_delimiter(
    tiny_run: Path, tmp_path: Path, capsys: Any
) -> None:
    given, out = tmp_path / "in.csv", tmp_path / "out.csv"
    given.write_text('id;text;label\n7;"a red; ""x""\ncat";colour\n8;=1+2 dog;\n')

    assert shell(["predict", str(tiny_run), str(given), "--out", str(out), "--top-k", "1"]) == 0

    first, second = rows_of(out, ";")
    assert list(first)[:5] == ["id", "text", "label", "predicted_label", "score"]
    assert (first["id"], first["text"], first["label"]) == ("7", 'a red; "x"\ncat', "colour")
    assert (second["text"], second["label"], second["truncated"]) == ("'=1+2 dog", "", "false")
    second["text"] = "=1+2 dog"
    for row in (first, second):
        (answer,) = Predictor(tiny_run).predict([row["text"]])
        assert row["predicted_label"] == answer["label"]
        assert float(row["score"]) == pytest.approx(answer["score"], abs=5.1e-5)
        assert len(row["score"].partition(".")[2]) <= 4
    assert "read as csv with ';'" in capsys.readouterr().err


def test_no_cell_of_a_csv_is_a_formula_and_the_same_text_is_read_back(
    tiny_run: Path, tmp_path: Path, capsys: Any
) -> None:
    texts = ["=HYPERLINK(1)", "@SUM(1)", "+49 30", "-a", "=\ta", "-0.5", "'=x", "''=x", "'a", "a"]
    written = ["'=HYPERLINK(1)", "'@SUM(1)", "'+49 30", "'-a", "'=\ta", "-0.5", "''=x", "'''=x"]
    given, out, again = (tmp_path / name for name in ("in.jsonl", "out.csv", "again.csv"))
    given.write_text("".join(json.dumps({"text": one, "=n": 1}) + "\n" for one in texts))

    assert shell(["predict", str(tiny_run), str(given), "--out", str(out)]) == 0

    rows = rows_of(out)
    assert [row["text"] for row in rows] == [*written, "'a", "a"]
    assert list(rows[0])[1] == "'=n"
    assert [one.text for one in read_examples(out, ReadOptions(), need_label=False)] == texts
    # And once more, from the table.
    assert shell(["predict", str(tiny_run), str(out), "--out", str(again), "--text", "text"]) == 0
    assert "8 cells read without the ' that keeps a spreadsheet" in capsys.readouterr().err
    assert [row["text"] for row in rows_of(again)] == [row["text"] for row in rows]


def test_a_sheet_goes_back_as_a_sheet(tiny_run: Path, tmp_path: Path) -> None:
    given, out, lines = tmp_path / "in.xlsx", tmp_path / "out.xlsx", tmp_path / "out.jsonl"
    with xlsxwriter.Workbook(str(given)) as book:
        sheet = book.add_worksheet()
        for number, row in enumerate([["text", "day"], ["a red", 3], ["https://a.b cat", "é"]]):
            sheet.write_row(number, 0, row)

    for target in (out, lines):
        assert shell(["predict", str(tiny_run), str(given), "--out", str(target)]) == 0

    head, *rows = CalamineWorkbook.from_path(str(out)).get_sheet_by_index(0).to_python()
    answers = [json.loads(line) for line in lines.read_text().splitlines()]
    assert head[:4] == ["text", "day", "label", "score"]
    assert [row[:3] for row in rows] == [
        ["a red", "3", answers[0]["label"]],
        ["https://a.b cat", "é", answers[1]["label"]],
    ]
    # A person compares four digits; lines of JSON have all.
    assert [row[3] for row in rows] == [round(one["score"], 4) for one in answers]


@pytest.mark.parametrize("suffix", [".csv", ".xlsx"])
def test_a_stopped_table_goes_on_with_the_same_bytes(
    suffix: str, tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, whole, out = tmp_path / "in.jsonl", tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    rows = [{"text": f"a red {n}", **({"n": [n]} if n % 2 else {"more": n})} for n in range(40)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
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
    assert shell([*command, str(out), "--resume"]) == 0

    assert out.read_bytes() == whole.read_bytes()
    if suffix == ".csv":
        assert [(one["n"], one["more"]) for one in rows_of(out)[:2]] == [("", "0"), ("[1]", "")]


def test_what_no_table_can_hold(tiny_run: Path, tmp_path: Path, capsys: Any) -> None:
    file, out = tmp_path / "in.jsonl", tmp_path / "out.xlsx"
    file.write_text(json.dumps({"text": "a " * 20_000}) + "\n")
    command = ["predict", str(tiny_run), str(file), "--out"]

    assert shell([*command, str(out)]) == 1
    said = "example 1: 'text' has 40,000 characters, and a cell of Excel holds 32,767; name"
    assert said in capsys.readouterr().err
    assert not out.exists()
    assert shell([*command, str(tmp_path / "out.csv")]) == 0


@pytest.mark.parametrize("suffix", [".parquet", ".tsv", ".ods", ".json"])
def test_no_file_has_the_suffix_of_another_form(
    suffix: str, tiny_run: Path, tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "texts.txt").write_text("a text\n")
    out = tmp_path / f"answers{suffix}"

    command = ["predict", str(tiny_run), str(tmp_path / "texts.txt"), "--out", str(out)]
    assert shell(command) == 2

    assert f"{suffix} can be read, but answers are written as JSON lines" in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["texts.txt"]


def test_the_official_format_is_json_alone(tiny_run: Path, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "texts.txt").write_text("a text\n")
    command = ["predict", str(tiny_run), str(tmp_path / "texts.txt"), "--official-format", "--out"]

    for suffix in (".csv", ".tsv", ".xlsx"):
        assert shell([*command, str(tmp_path / f"answers{suffix}")]) == 2
        assert f"--official-format writes JSON, and no {suffix}" in capsys.readouterr().err
    # This RUN classifies, so only the suffix is right.
    assert shell([*command, str(tmp_path / "answers.json")]) == 2
    assert "--official-format is for answers to questions" in capsys.readouterr().err


def test_a_text_that_is_in_no_file(tiny_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.csv"

    assert shell(["predict", str(tiny_run), "--input", "a red", "--out", str(out)]) == 0

    assert rows_of(out)[0]["text"] == "a red"


def test_a_question_of_squad_has_its_context(tmp_path: Path) -> None:
    question = {"id": "1", "question": "Who?", "answers": []}
    paragraphs = [{"context": "Anna drinks.", "qas": [question]}]
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))

    (one,) = read_questions.with_details(keep_columns="all")(path, need_label=False)

    assert one.columns == {**question, "context": "Anna drinks."}


def test_a_vector_is_one_cell() -> None:
    assert Embedded(vector=[1.0, 2.0]).row() == {"vector": [1.0, 2.0]}


def test_entities_are_one_cell() -> None:
    found = FoundEntity(type="PER", text="Zoë", start=0, end=3, score=0.9)

    assert Tagged(["Zoë", "is"], ["B-PER", "O"], [found, found]).row() == {
        "tags": "B-PER O",
        "entities": "Zoë (PER), Zoë (PER)",
    }
