"""Texts with any number of labels: a list, one text, columns of 0 and 1, and what is none."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidybert.errors import DataError, UsageError, in_python
from tidybert.files.columns import MISSING, LabelCells
from tidybert.files.reading import ReadOptions, ReadReport
from tidybert.files.text_examples import TextExample, label_names, labels_of
from tidybert.files.text_files import read_examples
from tidybert.options import flags_of

JIGSAW = """id,comment_text,toxic,obscene,insult
1,"you, sir",0,0,0
2,bad words,1,1,0
3,worse,1.0,true,1
"""


def read(path: Path, *, need_label: bool = True, **fields: Any) -> list[TextExample]:
    options = ReadOptions(**fields)
    return list(read_examples(path, options, need_label=need_label, multi_label=True))


def failure(path: Path, **fields: Any) -> str:
    with pytest.raises((DataError, UsageError)) as caught:
        read(path, **fields)
    return str(caught.value)


def labels(examples: list[TextExample]) -> list[tuple[str, ...] | None]:
    assert all(one.label is None for one in examples)
    return [one.labels for one in examples]


def test_several_columns_of_0_and_1(write: Any) -> None:
    path = write("comments.csv", JIGSAW)
    report = ReadReport()
    options = ReadOptions(text="comment_text", label="toxic, obscene,insult")

    examples = list(read_examples(path, options, need_label=True, multi_label=True, report=report))

    assert examples[0] == TextExample("you, sir", None, None, 2, ())
    expected = [(), ("toxic", "obscene"), ("toxic", "obscene", "insult")]
    assert labels(examples) == expected
    assert report.columns["label"] == "toxic,obscene,insult"
    assert "label toxic,obscene,insult" in in_python(report.lines()[0])
    assert label_names(examples) == ["insult", "obscene", "toxic"]
    assert labels(read(path, text=1, label="2,3,4", header=True)) == expected


def test_columns_by_number_without_a_header_are_named_by_it(write: Any) -> None:
    path = write("a.tsv", "one\t1\t0\ntwo\t1\t1\n")

    assert labels(read(path, text=0, label="1,2")) == [("1",), ("1", "2")]


def test_a_name_with_a_comma_in_the_header_is_one_column(write: Any) -> None:
    path = write("a.tsv", "text\ta,b\ta\tb\nword\tx,y\t1\t0\n")

    assert labels(read(path, label="a,b")) == [("x", "y")]


def test_a_column_that_is_never_true_is_noted(write: Any) -> None:
    path = write("a.csv", "text,calm,rude\none,0,1\ntwo,0,0\n")
    report = ReadReport()

    options = ReadOptions(label="calm,rude")
    list(read_examples(path, options, need_label=True, multi_label=True, report=report))

    assert report.notes == ["true in no row, so that no text has the label: calm"]


def test_columns_of_json_and_parquet(write: Any, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{"text": "a", "calm": 0, "rude": True}, {"text": "b", "calm": 1.0, "rude": "0"}]
    path = write("a.jsonl", "\n".join(map(json.dumps, rows)))
    assert labels(read(path, label="calm,rude")) == [("rude",), ("calm",)]

    table = pa.table({"text": ["a", "b"], "calm": [0, 1], "rude": [True, False]})
    pq.write_table(table, tmp_path / "a.parquet")
    assert labels(read(tmp_path / "a.parquet", label="calm,rude")) == [("rude",), ("calm",)]


def test_lists_and_texts(write: Any) -> None:
    values = [["b", "a", "b"], [], "a, b", "", " ", 3, [1, 2.0]]
    rows = [{"text": "t", "label": value} for value in values]
    path = write("a.jsonl", "\n".join(map(json.dumps, rows)))
    expected = [("b", "a"), (), ("a", "b"), (), (), ("3",), ("1", "2")]
    assert labels(read(path)) == expected

    path = write("a.csv", 'text,label\none,"x, y"\ntwo,\nthree,x\n')
    assert labels(read(path)) == [("x", "y"), (), ("x",)]


@pytest.mark.parametrize("separator", [";", "semicolon"])
def test_another_separator(write: Any, separator: str) -> None:
    path = write("a.csv", 'text,label\none,"x, y; z"\n')

    assert labels(read(path, label_separator=separator)) == [("x, y", "z")]


def test_labels_is_a_name_that_is_guessed(write: Any) -> None:
    assert labels(read(write("a.jsonl", '{"text": "t", "labels": ["x"]}'))) == [("x",)]


def test_a_list_in_parquet(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(
        pa.table({"text": ["a", "b"], "label": [["x", "y"], []]}), tmp_path / "a.parquet"
    )

    assert labels(read(tmp_path / "a.parquet")) == [("x", "y"), ()]


def test_what_is_no_set_of_labels_is_told_by_line(write: Any) -> None:
    path = write("a.csv", "text,calm,rude\none,0,1\ntwo,2,0\nthree,,1\nfour,-1,1\n")
    told = failure(path, label="calm,rude")
    assert f"{path}: 3 rows cannot be read:" in told
    assert f"{path}:3: 'calm' is '2' where 0 or 1 is expected" in told
    assert f"{path}:4: 'calm' is '' where" in told
    assert f"{path}:5: 'calm' is '-1' where" in told

    lines = ['{"text": "t", "label": null}', '{"text": "t", "label": {"a": "b"}}', '{"text": "t"}']
    lines += ['{"text": "t", "label": ["a", null]}', '{"text": "t", "label": "a,,b"}']
    path = write("a.jsonl", '{"text": "t", "label": []}\n' + "\n".join(lines))
    told = failure(path)
    for line, message in enumerate(
        [
            "the labels are null; for a text without any give an empty list",
            "the labels are an object;",
            "no key 'label'",
            "null among the labels",
            "an empty label in 'a,,b', whose labels ',' separates",
        ],
        start=2,
    ):
        assert f"{path}:{line}: {message}" in told


def test_a_label_that_nobody_could_write_is_told(write: Any) -> None:
    lines = ['{"text": "t", "label": ["\\ud83d"]}', '{"text": "t", "label": "a,\\ud83d"}']
    path = write("b.jsonl", '{"text": "t", "label": []}\n' + "\n".join(lines))
    told = failure(path)
    assert f"{path}:2: a text with a lone surrogate (half of a \\ud83d\\ude00 pair) among" in told
    assert f"{path}:3: 'labels' holds a lone surrogate" in told


def test_columns_that_are_missing_or_named_twice(write: Any) -> None:
    path = write("comments.csv", JIGSAW)
    assert "label 'obscen': there is no such column; did you mean 'obscene'?" in failure(
        path, text="comment_text", label="toxic,obscen"
    )
    assert "must name different columns" in failure(path, text="toxic", label="toxic,obscene")
    assert "give different columns" in failure(path, text="comment_text", label="toxic,toxic")
    assert "give different columns" in failure(path, text="comment_text", label="toxic,")


def test_to_predict_labels_may_be_absent_or_wrong(write: Any) -> None:
    path = write("a.csv", "text,calm\none,0\ntwo,7\n")
    read_on = {"need_label": False, "text": "text"}
    assert labels(read(path, label="calm,rude", **read_on)) == [None, None]
    assert labels(read(path, label="calm", **read_on)) == [("0",), ("7",)]

    path = write("a.jsonl", '{"text": "a", "calm": 1}\n{"text": "b", "calm": 1, "rude": 0}\n')
    assert labels(read(path, label="calm,rude", **read_on)) == [None, ("calm",)]


def test_one_label_a_text_has_no_use_for_them(write: Any) -> None:
    path = write("comments.csv", JIGSAW)
    options = ReadOptions(text="comment_text", label="toxic,insult")
    with pytest.raises(UsageError, match=r"label toxic,insult names several.*multi_label"):
        list(read_examples(path, options, need_label=True))
    with pytest.raises(UsageError, match="label_separator has a meaning only with multi_label"):
        list(read_examples(path, ReadOptions(label_separator=";"), need_label=True))
    with pytest.raises(UsageError, match="label_separator ''"):
        ReadOptions(label_separator="")


def test_the_flags_are_found_again() -> None:
    options = ReadOptions(label="a,b", label_separator="\t")

    assert flags_of(options, ReadOptions) == ["--label", "a,b", "--label-separator", "tab"]


@given(st.lists(st.text("abc .|", min_size=1).map(str.strip).filter(bool), unique=True))
def test_a_joined_text_is_split_again(names: list[str]) -> None:
    assert labels_of(" ; ".join(names), ";") == tuple(names)
    assert labels_of(list(names), ";") == tuple(names)


@given(st.dictionaries(st.text(min_size=1), st.booleans(), min_size=1))
def test_indicators_are_the_true_names(cells: dict[str, bool]) -> None:
    expected = tuple(name for name, is_true in cells.items() if is_true)

    for spelling in (bool, int, float, str, lambda each: f" {int(each)}"):
        assert labels_of(LabelCells({n: spelling(c) for n, c in cells.items()}), ",") == expected


def test_a_missing_label_is_no_empty_set() -> None:
    assert labels_of(MISSING, ",") == (
        "the labels are missing; for a text without any give an empty list or text"
    )
