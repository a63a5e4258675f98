"""Corrections come back as a person and a spreadsheet leave them, and nothing else passes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tidybert.data.corrections import apply_corrections, csv_text
from tidybert.errors import DataError
from tidybert.files.text_examples import TextExample

EXAMPLES = [
    TextExample('a "quoted", text', None, "-1", 2),
    TextExample("=SUM(A1)\nand a second line", None, "1", 3),
    TextExample("third", None, "1", 5),
]
HEAD = "row,label,correction,text\n"


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        path = tmp_path / "corrections.csv"
        path.write_bytes(text.encode())
        return str(path)

    return write


def test_a_filled_in_column_changes_labels_and_an_empty_cell_keeps_one(write) -> None:
    rows = [
        {"row": one.row, "text": one.text, "label": one.label, "correction": new}
        for one, new in zip(EXAMPLES, ("1", "-1", " "), strict=True)
    ]
    text = csv_text(rows, ["row", "label", "correction", "text"])
    # A spreadsheet must not run a text as a formula.
    assert "\"'=SUM(A1)\n" in text

    found = apply_corrections(write(text), EXAMPLES)

    assert [one.label for one in found.examples] == ["1", "-1", "1"]
    assert [one.text for one in found.examples] == [one.text for one in EXAMPLES]
    assert (found.num_changed, found.num_rows) == (2, 3)
    assert EXAMPLES[0].label == "-1"


def test_a_file_that_a_spreadsheet_saved_is_read(write) -> None:
    saved = "\ufeffrow;text;correction\r\n5;third ;-1\r\n"

    found = apply_corrections(write(saved), EXAMPLES)

    assert [one.label for one in found.examples] == ["-1", "1", "-1"]


def test_rows_as_spreadsheets_write_them(write) -> None:
    """Numbers have a decimal point, and empty rows stand at the end."""
    saved = "row,text,label,correction\n3.0,=SUM(A1) and a second line,1.0,-1.0\n,,,\n,,,\n"

    found = apply_corrections(write(saved), EXAMPLES)

    assert [one.label for one in found.examples] == ["-1", "-1", "1"]
    assert (found.num_changed, found.num_rows) == (1, 1)


def test_pairs_are_compared_in_both_texts(write) -> None:
    pairs = [TextExample("a", "b", "0", 2), TextExample("a", "c", "1", 3)]

    found = apply_corrections(write("row,text,text_pair,correction\n2,a,b,1\n"), pairs)

    assert found.num_changed == 1
    with pytest.raises(DataError, match=r"csv:2: the text_pair is 'c', but row 2 .* has 'b'"):
        apply_corrections(write("row,text,text_pair,correction\n2,a,c,1\n"), pairs)


def test_examples_of_one_line_are_told_apart_by_their_texts(write) -> None:
    """A JSON file may be one line; of two equal examples each is changed by its own row."""
    one_line = [TextExample(text, None, "0", 1) for text in ("a", "b", "b")]
    one_line.append(TextExample("c", None, "1", 1))

    found = apply_corrections(write("row,text,correction\n1,b,1\n1,c,0\n1,b,1\n"), one_line)

    assert [one.label for one in found.examples] == ["0", "1", "1", "0"]
    with pytest.raises(DataError, match=r"csv:3: row 1 comes a second time"):
        apply_corrections(write("row,text,correction\n1,a,1\n1,a,1\n"), one_line)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{HEAD}4,1,-1,third\n", r"csv:2: no example is in row '4'"),
        (f"{HEAD}x,1,-1,third\n", r"csv:2: no example is in row 'x'"),
        (f"{HEAD}5,1,-1,other\n", r"csv:2: the text is 'other', but row 5 .* has 'third'"),
        (f"{HEAD}5,,-1,third\n", r"csv:2: the label is '', but row 5 of the examples has '1'"),
        (f"{HEAD}5,1,-1,third\n5,1,-1,third\n", r"csv:3: row 5 comes a second time"),
        (f"{HEAD}5,1,one,third\n", r"csv:2: no example has the label 'one'"),
        (f"{HEAD}5,1,third\n", r"csv:2: 3 cells where the header has 4"),
        (f'{HEAD}5,1,-1,"third\n', r"csv:2: line 2 cannot be parsed: a quote is never closed"),
        ("row,text\n5,third\n", r"csv:1: the column 'correction' is missing"),
        ("", r"it is empty"),
    ],
)
def test_what_does_not_fit_is_an_error_with_its_line(text: str, message: str, write) -> None:
    with pytest.raises(DataError, match=message):
        apply_corrections(write(text), EXAMPLES)
