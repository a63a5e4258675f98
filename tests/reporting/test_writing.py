"""A report is whole or not there, and nothing of anybody else's is touched."""

import json
from pathlib import Path

import pytest

from tidybert.errors import UsageError
from tidybert.reporting import writing
from tidybert.reporting.contents import report_contents
from tidybert.reporting.report_page import report_page
from tidybert.reporting.writing import check_report_directory, write_report


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_both_files_are_written(classified, tmp_path: Path) -> None:
    page = write_report(classified(), tmp_path / "deep" / "report")

    assert page == tmp_path / "deep" / "report" / "report.html"
    assert names(page.parent) == {"report.json", "report.html"}
    contents = json.loads((page.parent / "report.json").read_text(encoding="utf-8"))
    assert contents == report_contents(classified())
    assert page.read_text(encoding="utf-8") == report_page(contents)


def test_an_earlier_report_and_an_empty_directory_are_taken(classified, tmp_path: Path) -> None:
    write_report(classified(), tmp_path)
    write_report(classified(count=40), tmp_path)
    assert json.loads((tmp_path / "report.json").read_text())["num_examples"] == 40


def test_the_directory_a_link_leads_to_is_written(classified, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_report(classified(), tmp_path / "link")
    assert names(tmp_path / "real") == {"report.json", "report.html"}
    assert (tmp_path / "link").is_symlink()

    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    write_report(classified(), ".")
    assert names(tmp_path / "here") == {"report.json", "report.html"}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"notes.txt": ""}, "holds 'notes.txt', which is not part of a report"),
        ({"a": "", "b": "", "report.html": ""}, "holds 'a' and 1 more that are not part"),
        ({"report.html": "<p>mine</p>"}, "report.html of another program"),
        ({"report.json": "{}"}, "report.json of another program"),
        ({"report.json": "7"}, "report.json of another program"),
        ({"report.json": "not json"}, "report.json of another program"),
    ],
)
def test_foreign_files_are_refused(classified, tmp_path: Path, files, message) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    with pytest.raises(UsageError, match=message):
        write_report(classified(), tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == files


def test_a_file_is_refused(classified, tmp_path: Path) -> None:
    (tmp_path / "report").write_text("mine")
    with pytest.raises(UsageError, match="is a file"):
        check_report_directory(tmp_path / "report")
    assert (tmp_path / "report").read_text() == "mine"


def test_a_place_that_cannot_be_written_is_told(classified, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"report='.*file.inner' cannot be written"):
        write_report(classified(), tmp_path / "file" / "inner")


def test_a_fault_half_way_leaves_the_earlier_report(
    classified, tmp_path: Path, monkeypatch
) -> None:
    write_report(classified(), tmp_path / "report")
    before = (tmp_path / "report" / "report.json").read_bytes()

    # A lone surrogate cannot be encoded, which shows once the file is open.
    monkeypatch.setattr(writing, "report_page", lambda contents: "<p>\ud800")
    with pytest.raises(UnicodeEncodeError):
        write_report(classified(count=40), tmp_path / "report")

    assert (tmp_path / "report" / "report.json").read_bytes() == before
    assert names(tmp_path) == {"report"}
