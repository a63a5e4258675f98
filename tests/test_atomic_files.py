"""Whatever interrupts a write, the target is whole: as it was, or as it was to become."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidybert.atomic_files import (
    atomic_directory,
    atomic_file,
    atomic_write_bytes,
    atomic_write_json,
    atomic_write_text,
    file_sha256,
    files_together,
    remove_partials,
)


class Interruption(BaseException):
    """Stands for what no ``except Exception`` catches."""


def tree(directory: Path) -> dict[str, bytes]:
    """Every file under ``directory`` with its content."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def test_a_file_is_replaced_and_nothing_else_stays(tmp_path: Path) -> None:
    atomic_write_bytes(tmp_path / "a", b"old")
    atomic_write_text(tmp_path / "a", "grün\r\n\n")
    assert tree(tmp_path) == {"a": "grün\r\n\n".encode()}


def test_json_holds_a_path_that_is_not_utf8(tmp_path: Path) -> None:
    odd = os.fsdecode(b"r\xfcn")
    atomic_write_json(tmp_path / "a.json", {"out": odd})
    assert json.loads((tmp_path / "a.json").read_text()) == {"out": odd}


def test_files_move_together_among_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other").write_text("stays")
    replace, moved = Path.replace, []

    def watch(self: Path, target: Path) -> Path:
        moved.append(self.name)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", watch)
    with files_together(tmp_path, first="hashes", last="weights") as partial:
        for name in ("weights", "hashes", "a", "b"):
            (partial / name).write_text("new")

    assert moved == ["hashes", "a", "b", "weights"]
    new = dict.fromkeys(("a", "b", "hashes", "weights"), b"new")
    assert tree(tmp_path) == {**new, "other": b"stays"}


def test_files_of_an_interrupted_write_do_not_move(tmp_path: Path) -> None:
    (tmp_path / "weights").write_text("old")

    def write() -> None:
        with files_together(tmp_path, first="hashes", last="weights") as partial:
            (partial / "weights").write_text("new")
            raise Interruption

    with pytest.raises(Interruption):
        write()
    assert tree(tmp_path) == {"weights": b"old"}


def test_a_file_has_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"")
    atomic_write_bytes(tmp_path / "atomic", b"")
    assert (tmp_path / "atomic").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_an_interrupted_file_is_as_it_was(tmp_path: Path) -> None:
    atomic_write_text(tmp_path / "a", "old")

    def write() -> None:
        with atomic_file(tmp_path / "a") as partial:
            partial.write_text("ne")
            raise Interruption

    with pytest.raises(Interruption):
        write()
    assert tree(tmp_path) == {"a": b"old"}


def test_a_link_left_in_the_way_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("untouched")
    (tmp_path / ".a.partial").symlink_to(tmp_path / "victim")
    atomic_write_text(tmp_path / "a", "new")
    assert tree(tmp_path) == {"a": b"new", "victim": b"untouched"}


def test_a_directory_appears_whole_and_makes_its_parents(tmp_path: Path) -> None:
    target = tmp_path / "runs" / "step-1"
    with atomic_directory(target) as partial:
        (partial / "deep").mkdir()
        (partial / "deep" / "a").write_text("1")
        assert not target.exists()
    assert tree(tmp_path) == {"runs/step-1/deep/a": b"1"}


def test_a_directory_is_replaced_as_a_whole(tmp_path: Path) -> None:
    for name in ("old", "new"):
        with atomic_directory(tmp_path / "step-1") as partial:
            (partial / name).write_text(name)
    assert tree(tmp_path) == {"step-1/new": b"new"}
    assert [path.name for path in tmp_path.iterdir()] == ["step-1"]


@pytest.mark.parametrize("failing", [1, 2])
def test_a_directory_survives_a_failing_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    with atomic_directory(tmp_path / "step-1") as partial:
        (partial / "a").write_text("old")
    rename, calls = Path.rename, 0

    def fail(self: Path, target: Path) -> Path:
        nonlocal calls
        calls += 1
        if calls == failing:
            raise Interruption
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(Interruption), atomic_directory(tmp_path / "step-1") as partial:
        (partial / "a").write_text("new")
    assert tree(tmp_path) == {"step-1/a": b"old"}


def test_a_kill_between_the_renames_is_put_right(tmp_path: Path) -> None:
    (tmp_path / ".step-1.replaced.partial").mkdir()
    (tmp_path / ".step-1.replaced.partial" / "a").write_text("old")
    (tmp_path / ".step-1.partial").mkdir()
    remove_partials(tmp_path)
    assert tree(tmp_path) == {"step-1/a": b"old"}
    assert [path.name for path in tmp_path.iterdir()] == ["step-1"]


def test_what_a_kill_leaves_is_cleared(tmp_path: Path) -> None:
    (tmp_path / ".step-1.partial").mkdir()
    (tmp_path / ".step-1.partial" / "half").write_text("x")
    (tmp_path / ".a.partial").write_text("x")
    (tmp_path / "kept.partial").write_text("x")
    with atomic_directory(tmp_path / "step-1") as partial:
        assert list(partial.iterdir()) == []
    remove_partials(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept.partial", "step-1"]


WRITER = """
import sys
from pathlib import Path
from tidybert.atomic_files import atomic_directory
target = Path(sys.argv[1])
for i in range(10**6):
    with atomic_directory(target) as partial:
        for name in "abcd":
            (partial / name).write_text(str(i))
    print(i, flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="kills with SIGKILL")
def test_a_process_killed_while_writing_leaves_one_version(tmp_path: Path) -> None:
    target = tmp_path / "step"
    for wait in (0.0, 0.003, 0.007, 0.012):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(target)], stdout=subprocess.PIPE
        ) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(wait)
            writer.send_signal(signal.SIGKILL)
        remove_partials(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["step"]
        files = tree(target)
        assert sorted(files) == ["a", "b", "c", "d"]
        assert len(set(files.values())) == 1


@given(st.binary(max_size=1000))
def test_sha256_is_that_of_hashlib(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("hash") / "a"
    atomic_write_bytes(path, data)
    assert file_sha256(path) == hashlib.sha256(data).hexdigest()
