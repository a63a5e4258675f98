"""labels.csv and corrections.csv while a person works: each answer is there, whatever happens."""

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas
import pytest

from tidybert.data.labels_file import Answer, CorrectionsFile, LabelsFile
from tidybert.errors import DataError
from tidybert.files.reading import ReadReport
from tidybert.files.rows import in_memory
from tidybert.files.text_files import read_examples

ANSWERS = [
    Answer(("late again",), ("billing",), "labelled", "random", "2"),
    Answer(('=SUM(1) "quoted", and\nan empty line',), ("delivery",), "labelled", "chosen", "3"),
    Answer(("naïve 日本",), (), "skipped", "chosen", "5"),
]


def opened(path: Path, **given: Any) -> Any:
    return LabelsFile.opened(path, **{"by": "", "is_pair": False, "multi_label": False, **given})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with ANSWERS."""
    path = tmp_path / "labels.csv"
    with opened(path, by="Zoë") as file:
        file.read()
        for one in ANSWERS:
            file.add([one])
    return path


def test_answers_are_read_again_and_a_spreadsheet_runs_none(path: Path) -> None:
    content = path.read_bytes()
    rows = list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"))))

    assert content.startswith(b"\xef\xbb\xbftext,label,label_status,drawn,row,by,at\n")
    assert rows[1]["text"] == "'" + ANSWERS[1].texts[0]
    assert {row["by"] for row in rows} == {"Zoë"}
    with opened(path) as file:
        assert file.read() == ANSWERS
        assert not file.has_changed()
    found = list(read_examples(path, None, need_label=True))
    assert [(one.text, one.label) for one in found] == [
        (one.texts[0], one.labels[0]) for one in ANSWERS[:2]
    ]


def test_the_last_row_counts_in_objects_and_columns_too(path: Path) -> None:
    with opened(path) as file:
        file.read()
        file.add([replace(ANSWERS[0], labels=("refund",))])
    frame = pandas.read_csv(path)
    files = [path.with_name(name) for name in ("a.jsonl", "a.json", "a.parquet")]
    frame.to_json(files[0], orient="records", lines=True)
    frame.to_json(files[1], orient="records")
    frame.to_parquet(files[2])

    in_both_ways = [in_memory(one, "train", None) for one in (frame, frame.to_dict("records"))]
    for each in (*files, *in_both_ways):
        report = ReadReport()
        found = list(read_examples(each, None, need_label=True, report=report))
        assert [(one.label, one.drawn) for one in found] == [
            ("delivery", "chosen"), ("refund", "random"),
        ]  # fmt: skip
        notes = "\n".join(report.notes)
        assert "1 row replaced by later ones" in notes
        assert "1 skipped" in notes


def test_a_broken_line_of_objects_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    row = '{"text": "a", "label": "b", "label_status": "labelled", "drawn": "chosen"}'
    path.write_text(f"{row}\n{row[:20]}\n")
    with pytest.raises(DataError, match=r"a\.jsonl:2: not JSON"):
        list(read_examples(path, None, need_label=True))


def test_whatever_byte_of_a_row_a_kill_reached_the_rows_before_it_are_whole(path: Path) -> None:
    whole = path.read_bytes()
    begin = whole.index(b"'=SUM") - 1
    end = whole.index("naïve".encode())
    for size in range(begin, end):
        path.write_bytes(whole[:size])
        with opened(path) as file:
            found = file.read()
            assert found[:1] == ANSWERS[:1]
            assert found[1:] in ([], ANSWERS[1:2]), whole[begin:size]
            # What follows is a row of its own.
            file.add([ANSWERS[2]])
            assert file.read() == [*found, ANSWERS[2]]
        assert b"cut" not in path.read_bytes()


def test_a_row_that_was_cut_off_is_named(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b'"half of a te')
    with opened(path) as file:
        assert file.read() == ANSWERS
        assert "line 6 was cut off by a kill" in file.notes[0]


def test_rows_follow_in_the_separator_and_the_encoding_of_a_spreadsheet(path: Path) -> None:
    with opened(path) as file:
        file.read()
        text = path.read_text(encoding="utf-8-sig").replace("日本", "")
        rows = list(csv.reader(io.StringIO(text)))
        saved = io.StringIO()
        writer = csv.writer(saved, delimiter=";", lineterminator="\r\n")
        # A person has put a column before the others, and has filled in a cell.
        writer.writerows([["mine", *rows[0]], *(["x", *row] for row in rows[1:])])
        said = saved.getvalue().replace("naïve ;;skipped", "naïve ;Über;skipped")
        path.write_bytes(said.encode("cp1252"))

        assert file.has_changed()
        assert [one.labels for one in file.read()] == [("billing",), ("delivery",), ("Über",)]
        file.add([Answer(("größer; später",), ("Über",), "labelled", "chosen", "9")])
        assert file.read()[-1].texts == ("größer; später",)
        with pytest.raises(DataError, match="cp1252, which lacks '日'"):
            file.add([Answer(("日",), ("Über",), "labelled", "chosen", "9")])
    assert path.read_bytes().decode("cp1252").splitlines()[-1].startswith(';"größer; später";Über')


HEAD = "text,label,label_status,drawn,row,by,at\n"
ROW = "a,b,labelled,chosen,1,,\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (HEAD + ROW + '"left open,b,labelled,chosen,2,,\n' + 3 * ROW, ":3: "),
        ("", "expected a file of labels with the columns"),
        ("text,label\na,b\n", "expected a file of labels with the columns text, label"),
        (HEAD + "a,,sure,,,,\n", ":2: .*'sure'"),
        (HEAD + "a,b\nc,d,labelled,,,,\n", ":2: 2 cells"),
    ],
)
def test_another_file_is_refused_and_stays(content: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text(content)
    with opened(path) as file, pytest.raises(DataError, match=said):
        file.read()
    assert path.read_text() == content


def test_a_file_that_a_spreadsheet_has_half_written_takes_no_answer(path: Path) -> None:
    with opened(path) as file:
        file.read()
        whole = path.read_bytes()
        path.write_bytes(b"text,la")
        for _ in range(2):
            assert file.has_changed()
            with pytest.raises(DataError):
                file.read()
        path.write_bytes(whole)
        assert file.read() == ANSWERS


def test_one_person_labels_at_a_time_and_a_file_that_is_gone_takes_no_answer(path: Path) -> None:
    with opened(path) as file:
        file.read()
        assert next(path.parent.glob(".labels.csv.tidybert-lock")).exists()
        path.unlink()
        with pytest.raises(DataError, match="is gone"):
            file.add(ANSWERS[:1])


def test_texts_may_be_pairs_with_several_labels(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    pair = Answer(("a cat", "a dog"), ("x", "y"), "labelled", "chosen", "2")
    with opened(path, is_pair=True, multi_label=True) as file:
        file.add([pair])
        assert file.read() == [pair]
    (one,) = read_examples(path, None, need_label=True, multi_label=True)
    assert (one.text, one.text_pair, one.labels) == ("a cat", "a dog", ("x", "y"))


def test_corrections_are_filled_in_and_emptied(tmp_path: Path) -> None:
    path = tmp_path / "corrections.csv"
    path.write_text(
        "row,label,suggested,correction,text,why\n2,no,yes,,fine,p 0.1\n2,no,yes,,good,p 0.2\n"
    )
    answer = Answer(("good",), ("yes",), "labelled", "chosen", "2")
    with CorrectionsFile.opened(path) as file:
        assert file.read() == []
        file.add([answer])
        assert file.read() == [answer]
        assert path.read_text().splitlines()[1:] == [
            "2,no,yes,,fine,p 0.1",
            "2,no,yes,yes,good,p 0.2",
        ]
        file.add([Answer(("good",), (), "undone", "chosen", "2")])
        assert file.read() == []


def test_corrections_of_a_spreadsheet_have_their_rows_and_others_are_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "corrections.csv"
    path.write_text("row;label;correction;text\n2.0;no;yes;fine\n")
    with CorrectionsFile.opened(path) as file:
        assert file.read() == [Answer(("fine",), ("yes",), "labelled", "chosen", "2")]
    path.write_text("row,label,correction,text\nfirst,no,,fine\n")
    with pytest.raises(DataError, match=":2: row is 'first'"), CorrectionsFile.opened(path):
        pass
