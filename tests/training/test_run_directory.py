"""Whether a RUN may be written, told before anything is loaded."""

import os
import shutil
from pathlib import Path

import pytest

from tidybert.errors import UsageError
from tidybert.training.runs.run_directory import check_run, is_resumed_in_vain


def test_a_new_directory_may_be_written_and_is_not_made(tmp_path: Path) -> None:
    check_run(tmp_path / "a" / "b", resume=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("below", ["", "/run", "/a/run"])
def test_a_file_in_the_way_is_named(below: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("text")
    with pytest.raises(UsageError, match=f"out='{file}{below}'.*is a file; name a new directory"):
        check_run(Path(f"{file}{below}"), resume=False)


def test_a_relative_path_is_looked_for_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    check_run(Path("a/run"), resume=False)
    Path("a").write_text("text")
    with pytest.raises(UsageError, match=r"out='a/run': .*a is a file"):
        check_run(Path("a/run"), resume=False)


def test_a_directory_that_may_not_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whoever runs the tests may be allowed everything.
    monkeypatch.setattr(os, "access", lambda path, _mode: Path(path) != tmp_path)
    with pytest.raises(UsageError, match=f"no permission to write in {tmp_path}; name another"):
        check_run(tmp_path / "run", resume=False)


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="is not empty, and holds no RUN; give a new directory"):
        check_run(tmp_path, resume=False)


def test_a_run_killed_before_its_checkpoints_went_loses_them_at_the_next_resume(
    tiny_run: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    (run / "checkpoints" / "step-4").mkdir(parents=True)

    assert is_resumed_in_vain(run, keep_checkpoints=True)
    assert (run / "checkpoints" / "step-4").is_dir()
    assert is_resumed_in_vain(run, keep_checkpoints=False)
    assert not (run / "checkpoints").exists()
    assert not is_resumed_in_vain(tmp_path, keep_checkpoints=False)
