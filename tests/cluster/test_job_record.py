from pathlib import Path

import pytest
from msgspec.structs import replace

from tidybert.cluster.input_files import FileDone, add_done, begin_manifest, job_line
from tidybert.errors import DataError, UsageError

JOB = job_line("predict", "abc", {"options": {"device": "auto"}, "read": ["--text", "message"]})
DONE = FileDone("a.csv", 10, "5", "00", "a.csv.jsonl", 20, "11", 3, 1, 0)


def test_what_is_noted_comes_back(tmp_path: Path) -> None:
    assert begin_manifest(tmp_path / "out", JOB) == {}
    add_done(tmp_path / "out", [DONE, replace(DONE, input="b.csv")])

    assert begin_manifest(tmp_path / "out", JOB) == {
        "a.csv": DONE,
        "b.csv": replace(DONE, input="b.csv"),
    }


def test_a_line_that_a_kill_cut_is_no_line_and_the_next_one_is_whole(tmp_path: Path) -> None:
    out = tmp_path / "out"
    begin_manifest(out, JOB)
    add_done(out, [DONE])
    with (out / "manifest.jsonl").open("a") as file:
        file.write('{"input": "b.c')

    assert list(begin_manifest(out, JOB)) == ["a.csv"]
    add_done(out, [replace(DONE, input="b.csv")])
    assert list(begin_manifest(out, JOB)) == ["a.csv", "b.csv"]


def test_another_job_is_refused_with_what_differs(tmp_path: Path) -> None:
    begin_manifest(tmp_path / "out", JOB)

    with pytest.raises(
        UsageError,
        match=r"holds a job .*\n  MODEL: abc before, def now\n  read: ",
    ):
        begin_manifest(tmp_path / "out", {**JOB, "model": "def", "read": []})


def test_a_folder_with_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")

    with pytest.raises(UsageError, match="not empty"):
        begin_manifest(tmp_path, JOB)


@pytest.mark.parametrize("content", ["", "{", '{"input": "a.csv"}\n'])
def test_a_damaged_manifest_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "manifest.jsonl").write_text(content)

    with pytest.raises(DataError, match="damaged"):
        begin_manifest(tmp_path, JOB)
