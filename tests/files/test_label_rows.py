"""A file of labels that grows: the last row of a text counts, whoever reads it."""

from pathlib import Path

import pytest

from tidybert.errors import DataError
from tidybert.files.reading import ReadReport
from tidybert.files.text_files import read_examples

HEAD = "text,label,label_status,drawn,row,by,at\n"
ROWS = """late again,billing,labelled,random,2,,2026-01-01
"no, thanks",,skipped,chosen,3,,2026-01-01
late again,delivery,labelled,random,2,,2026-01-01
fine,praise,labelled,chosen,4,,2026-01-01
fine,,undone,chosen,4,,2026-01-01
hello,,none,chosen,5,,2026-01-01
"""


def read(path: Path, *, need_label: bool = True, **details: bool) -> tuple[list, ReadReport]:
    report = ReadReport()
    found = list(read_examples(path, None, need_label=need_label, report=report, **details))
    return [(one.row, one.text, one.label, one.labels) for one in found], report


@pytest.mark.parametrize("separator", [",", ";"])
def test_the_last_row_of_a_text_counts(separator: str, tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    rows = ROWS if separator == "," else ROWS.replace(",", ";").replace('"no; thanks"', "no")
    path.write_text(HEAD.replace(",", separator) + rows, encoding="utf-8")

    found, report = read(path)

    assert found == [(4, "late again", "delivery", None)]
    notes = "\n".join(report.notes)
    assert "2 rows replaced by later ones of the same text" in notes
    assert "1 skipped, 1 taken back, 1 in none of the classes" in notes


def test_a_text_of_no_class_has_an_empty_set_of_labels(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text(HEAD + ROWS, encoding="utf-8")
    several, _ = read(path, multi_label=True)
    texts, _ = read(path, need_label=False)

    assert [each[1::2] for each in several] == [
        ("late again", ("delivery",)),
        ("hello", ()),
    ]
    assert [each[1] for each in texts] == ["no, thanks", "late again", "fine", "hello"]


@pytest.mark.parametrize("tail", ["cut", "cut,billing,labelled,cho"])
def test_a_row_that_a_kill_has_cut_is_left_out_and_named(tail: str, tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text(HEAD + ROWS + tail, encoding="utf-8")

    found, report = read(path)

    assert [each[1] for each in found] == ["late again"]
    assert any("cut off as it was written" in line for line in report.lines())
    for wrong, said in (("cut\n" + ROWS, ":2: "), (ROWS + '"cut in', "tidybert label takes it")):
        path.write_text(HEAD + wrong, encoding="utf-8")
        with pytest.raises(DataError, match=said):
            read(path)


def test_a_status_that_nobody_wrote_is_an_error_and_other_files_keep_all_rows(
    tmp_path: Path,
) -> None:
    path = tmp_path / "labels.csv"
    path.write_text(HEAD + "a,,maybe,random,1,,\nb,x,labelled,random,2,,\n", encoding="utf-8")
    with pytest.raises(DataError, match="label_status is 'maybe'"):
        read(path)
    path.write_text("text,label\na,x\na,y\n", encoding="utf-8")
    assert [each[2] for each in read(path)[0]] == ["x", "y"]
