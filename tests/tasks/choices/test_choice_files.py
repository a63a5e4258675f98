"""Questions with choices: SWAG, CODAH and JSON lines, and bad input by file and line."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidybert.errors import DataError, UsageError, in_python
from tidybert.files.reading import ReadOptions, ReadReport
from tidybert.files.rows import Problem
from tidybert.tasks.choices.choice_files import ChoiceExample, choice_example, read_choices

SWAG = """,video-id,fold-ind,startphrase,sent1,sent2,gold-source,\
ending0,ending1,ending2,ending3,label
0,x,1,"She opens. She","She opens, the ""box"".",She,gold,looks in.,closes it.,sings.,"runs, far.",0
1,x,2,"He sits. He",He sits.,He,gen,stands up.,eats.,drinks.,waits.,3
"""
CODAH = 'o\tA dog "runs". It\tbarks.\tmeows.\tflies.\treads.\t0\nq\t2 + 2 = ?\t2\t1\t4\t3\t2\n'


def read(
    path: Path, *, need_label: bool = True, report: ReadReport | None = None, **fields: Any
) -> list[ChoiceExample]:
    return list(read_choices(path, ReadOptions(**fields), need_label=need_label, report=report))


def failure(path: Path, *, need_label: bool = True, **fields: Any) -> str:
    with pytest.raises((DataError, UsageError)) as caught:
        read(path, need_label=need_label, **fields)
    return str(caught.value)


def json_lines(*records: Any) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.mark.parametrize("name", ["swag.csv", "train.csv.gz"])
def test_swag(write: Any, name: str) -> None:
    report = ReadReport()

    first, second = read(write(name, SWAG), report=report)

    assert first == ChoiceExample(
        'She opens, the "box".',
        "She",
        ("looks in.", "closes it.", "sings.", "runs, far."),
        0,
        2,
    )
    assert first.continued()[3] == "She runs, far."
    assert (second.label, second.row) == (3, 3)
    assert (report.format, report.header) == ("swag", True)
    assert [*map(in_python, report.notes)] == ["read as format='swag', judged by the first line"]


def test_swag_without_answers_and_with_another_number_of_endings(write: Any) -> None:
    path = write("test.csv", "sent1,sent2,ending0,ending1\na,b,c,d\n")

    assert read(path, need_label=False) == [ChoiceExample("a", "b", ("c", "d"), None, 2)]
    assert "no column is named any of label, answer. Columns seen: 0 'sent1'" in failure(path)


def test_codah(write: Any) -> None:
    report = ReadReport()

    first, second = read(write("codah.tsv", CODAH), report=report)

    choices = ("barks.", "meows.", "flies.", "reads.")
    assert first == ChoiceExample('A dog "runs". It', "", choices, 0, 1)
    assert first.continued() == list(choices)
    # The answer is a number, though it is the text of a choice too.
    assert second.label == 2
    assert report.format == "codah"
    bare = write("bare.tsv", "o\tprompt\ta\tb\tc\td\n")
    assert read(bare, need_label=False)[0].label is None
    assert ":1: 6 columns where 7 are expected (category, prompt, 4 endings" in failure(bare)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"context": "c", "choices": ["a", "b", "d"], "label": 2}, ("c", "", 2)),
        ({"prompt": "c", "endings": ["a", "b"], "answer": "b"}, ("c", "", 1)),
        ({"question": "q", "choices": ["a", "b"], "answer": 1.0, "id": 7}, ("q", "", 1)),
        ({"sent1": "c", "sent2": "s", "endings": ["1", "0"], "label": "0"}, ("c", "s", 1)),
        ({"context": "c", "start": "s", "choices": ["a", "b"], "label": 0}, ("c", "s", 0)),
        ({"context": "c", "question": "q?", "choices": ["a", "b"], "label": 0}, ("c", "q?", 0)),
    ],
)
def test_json_lines(write: Any, record: dict[str, Any], expected: tuple[str, str, int]) -> None:
    report = ReadReport()

    (one,) = read(write("a.jsonl", "\n" + json_lines(record)), report=report)

    assert (one.context, one.start, one.label) == expected
    assert one.choices == tuple(record.get("choices", record.get("endings")))
    assert one.row == 2
    assert "1 blank line passed over" in report.notes


def test_the_number_of_choices_may_differ(write: Any) -> None:
    path = write(
        "a.jsonl",
        json_lines(
            {"context": "c", "choices": ["a", "b"], "label": 1},
            {"context": "d", "choices": list("vwxyz"), "label": 4},
        ),
    )

    assert [len(one.choices) for one in read(path)] == [2, 5]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"choices": ["a", "b"], "label": 0}, "none of the keys context, prompt, sent1, question"),
        (
            {"context": "c", "label": 0},
            "none of the keys choices, endings among 'context', 'label'",
        ),
        ({"context": "c", "choices": ["a", "b"]}, "none of the keys label, answer"),
        ({"context": "c", "choices": ["a"], "label": 0}, "1 choice; two at least are needed"),
        ({"context": "c", "choices": [], "label": 0}, "0 choices; two at least"),
        ({"context": "c", "choices": "ab", "label": 0}, "'choices' is a text where a list"),
        ({"context": "c", "choices": ["a", " "], "label": 0}, "choice 1 (the first is 0) is empty"),
        ({"context": "c", "choices": ["a", 3], "label": 0}, "'choice 1' is the number 3 where"),
        ({"context": None, "choices": ["a", "b"], "label": 0}, "'context' is null where a text"),
        ({"context": "\ud83d", "choices": ["a", "b"], "label": 0}, "'context' holds a lone surro"),
        (
            {"context": "c", "choices": ["a", "b"], "label": 2},
            "is 2; the choices are numbered from",
        ),
        ({"context": "c", "choices": ["a", "b"], "label": -1}, "is -1; the choices are numbered"),
        ({"context": "c", "choices": ["a", "b"], "label": 0.5}, "is the number 0.5; give the num"),
        ({"context": "c", "choices": ["a", "b"], "label": True}, "the answer is a boolean"),
        ({"context": "c", "choices": ["a", "b"], "label": None}, "the answer is missing"),
        (
            {"context": "c", "choices": ["a", "b"], "label": "1"},
            "the answer is '1'; give the number",
        ),
        ({"context": "c", "choices": ["a", "a"], "label": "a"}, "the text of several choices"),
        (
            {"context": "c", "choices": ["a", "b"], "endings": ["a", "b"], "label": 0},
            "both 'choices' and 'endings'",
        ),
        (
            {"context": "c", "prompt": "d", "choices": ["a", "b"], "label": 0},
            "both 'context' and 'prompt'",
        ),
        (
            {"context": "c", "question": "q", "start": "s", "choices": ["a", "b"], "label": 0},
            "both 'context' and 'question'",
        ),
        ([1], "a list where an object is expected"),
    ],
)
def test_bad_json_lines(write: Any, record: Any, message: str) -> None:
    good = {"context": "c", "choices": ["a", "b"], "label": 0}
    path = write("a.jsonl", json_lines(good, record))

    told = failure(path)

    assert f"{path}: 1 row cannot be read:\n  {path}:2: " in told
    assert message in told


def test_bad_rows_are_counted_and_can_be_skipped(write: Any) -> None:
    lines = ["o\tp\ta\tb\tc\td\t4", "o\tp\ta\t\tc\td\t1", "o\tp\ta\tb\tc\td\tx", "o\tp\ta\t1"]
    lines += ["o\tp\ta\tb\tc\td\t", "short", "o\tp\ta\tb\tc\td\t3"]
    path = write("a.tsv", CODAH + "\n".join(lines))
    told = failure(path)
    assert f"{path}: 6 rows cannot be read:" in told
    assert f"{path}:3: the answer is 4; the choices are numbered from 0 to 3" in told
    assert f"{path}:4: choice 1 (the first is 0) is empty" in told
    assert f"{path}:5: the answer is 'x'; give the number of a choice" in told
    assert f"{path}:6: 4 columns where 7 are expected" in told
    assert f"{path}:7: the answer is missing" in told
    assert "and 1 more" in told

    report = ReadReport()
    examples = list(read_choices(path, need_label=True, skip_bad_rows=True, report=report))
    assert [one.row for one in examples] == [1, 2, 9]
    assert (report.num_examples, report.num_problems) == (3, 6)


def test_bad_swag_rows(write: Any) -> None:
    path = write("a.csv", SWAG + 'only,two\n2,x,2,s,a,b,g,c,d,e,f,4\n3,x,2,s,a,b,g,c,"d,e,f,4\n')
    told = failure(path)
    assert f"{path}:4: 2 columns where the header has 12" in told
    assert f"{path}:5: the answer is 4;" in told
    assert f"{path}:6: line 6 cannot be parsed: a quote is never closed" in told
    assert "several columns are named 'sent1'" in failure(
        write("b.csv", "sent1,sent1,sent2,ending0,ending1,label\na,b,c,d,e,0\n")
    )
    assert "no column is named any of context, prompt, sent1, question" in failure(
        write("c.csv", "sent2,ending0,ending1,label\na,d,e,0\n")
    )
    assert ":2: 1 choice; two at least" in failure(
        write("d.csv", "sent1,sent2,ending0,label\na,b,c,0\n")
    )


def test_wrong_json_and_wrong_bytes(write: Any) -> None:
    good = json_lines({"context": "é", "choices": ["a", "b"], "label": 0})
    assert ":2: not JSON: " in failure(write("a.jsonl", good + "{oops\n"))

    mixed = CODAH.encode() + "o\tcafé³\ta\tb\tc\td\t1\n".encode("latin-1")
    path = write("a.tsv", mixed)
    assert f"{path}:3: byte 0xe9 at column 6 is not utf-8; save the file as UTF-8" in failure(path)
    assert read(path, encoding="latin-1")[2].context == "café³"
    assert read(write("b.csv", SWAG.encode("utf-16")), encoding="utf-16")[0].label == 0
    assert read(write("c.csv", "\ufeff" + SWAG))[0].label == 0


@pytest.mark.parametrize("content", ["", "\n\n", "\ufeff"])
def test_an_empty_file(write: Any, content: str) -> None:
    assert "holds no example" in failure(write("a.tsv", content))
    assert "holds no example" in failure(write("a.tsv", content), format="jsonl")


def test_a_file_that_is_none_of_these(write: Any, tmp_path: Path) -> None:
    path = write("a.txt", "plain words\n")
    assert "give format, one of swag, codah, jsonl" in failure(path)
    assert "no such file" in failure(tmp_path / "absent.csv")
    assert "format='csv': choices are read from swag" in failure(path, format="csv")
    swag = write("a.csv", SWAG)
    assert "text has no meaning for format='swag'" in failure(swag, text="sent1")
    assert "header has no meaning for format='swag'" in failure(swag, header=True)
    lines = write("a.jsonl", json_lines({"context": "c", "choices": ["a", "b"], "label": 0}))
    assert "quoting has no meaning for format='jsonl'" in failure(lines, quoting=True)


def test_the_delimiter_and_the_quotes_can_be_others(write: Any) -> None:
    path = write("a.txt", SWAG.replace(",", ";").replace("runs; far", "runs, far"))
    assert read(path, delimiter="semicolon")[0].choices[3] == "runs, far."

    quoted = write("b.tsv", 'o\t"a\tprompt"\ta\tb\tc\td\t1\n')
    assert read(quoted, quoting=True)[0].context == "a\tprompt"


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(CODAH.encode())))

    assert [one.label for one in read_choices("-", need_label=True)] == [0, 2]


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)


@given(texts, texts, st.lists(texts, min_size=2, max_size=6), st.data())
def test_what_is_written_as_json_or_csv_is_read_again(
    tmp_path_factory: pytest.TempPathFactory,
    context: str,
    start: str,
    choices: list[str],
    data: st.DataObject,
) -> None:
    label = data.draw(st.integers(0, len(choices) - 1))
    folder = tmp_path_factory.mktemp("choices")
    expected = ChoiceExample(context, start, tuple(choices), label, 1)
    record = {"context": context, "start": start, "choices": choices, "label": label}
    (folder / "a.jsonl").write_text(json_lines(record), encoding="utf-8")
    assert read(folder / "a.jsonl") == [expected]

    assert choice_example(1, context, start, choices, label, need_label=True) == expected
    assert isinstance(
        choice_example(1, context, start, choices, len(choices), need_label=True), Problem
    )

    # A NUL and a lone carriage return are refused in delimited text, as in every reader.
    if any(char in text for text in (context, start, *choices) for char in "\0\r"):
        return
    with (folder / "a.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["sent1", "sent2", *(f"ending{n}" for n in range(len(choices))), "label"])
        writer.writerow([context, start, *choices, label])
    (one,) = read(folder / "a.csv")
    assert (one.context, one.start, one.choices, one.label) == (
        context,
        start,
        tuple(choices),
        label,
    )


@pytest.mark.real_data
@pytest.mark.parametrize(("part", "count"), [("train", 1_665), ("dev", 556), ("test", 555)])
def test_codah_is_read_as_published(real_data: Path, part: str, count: int) -> None:
    report = ReadReport()

    examples = read(real_data / f"choice/codah/{part}.tsv", report=report)

    assert len(examples) == report.num_examples == count
    assert report.num_problems == 0
    assert {one.label for one in examples} == {0, 1, 2, 3}
    assert all(len(one.choices) == 4 for one in examples)
