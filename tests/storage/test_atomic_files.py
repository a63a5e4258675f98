"""Whatever interrupts a write, the target is whole: as it was, or as it was to become."""

import errno
import hashlib
import json
import os
from collections.abc import Callable
from contextlib import closing, suppress
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidybert.errors import DiskError
from tidybert.storage.atomic_files import (
    append_text,
    atomic_directory,
    atomic_file,
    atomic_write_bytes,
    atomic_write_json,
    atomic_write_text,
    file_sha256,
    files_together,
)
from tidybert.storage.output_lock import output_lock
from tidybert.storage.own_files import GrowingFile, move_files, require_room


class Interruption(BaseException):
    """Stands for what no ``except Exception`` catches."""


def tree(directory: Path) -> dict[str, bytes]:
    """Every file under ``directory`` with its content."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def interrupted(write: Callable[[], object]) -> None:
    with pytest.raises(Interruption):
        write()


def test_a_file_is_replaced_and_nothing_else_stays(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"")
    atomic_write_bytes(tmp_path / "a", b"old")
    atomic_write_text(tmp_path / "a", "grün\r\n\n")
    assert tree(tmp_path) == {"a": "grün\r\n\n".encode(), "plain": b""}
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "plain").stat().st_mode

    def write() -> None:
        with atomic_file(tmp_path / "a") as partial:
            partial.write_text("ne")
            raise Interruption

    interrupted(write)
    assert tree(tmp_path) == {"a": "grün\r\n\n".encode(), "plain": b""}


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

    def write(content: str, error: type[BaseException] | None = None) -> None:
        with files_together(tmp_path, first="hashes", last="weights") as partial:
            for name in ("weights", "hashes", "a", "b"):
                (partial / name).write_text(content)
            if error:
                raise error

    monkeypatch.setattr(Path, "replace", watch)
    write("new")
    interrupted(lambda: write("newer", Interruption))

    assert moved == ["hashes", "a", "b", "weights"]
    new = dict.fromkeys(("a", "b", "hashes", "weights"), b"new")
    assert tree(tmp_path) == {**new, "other": b"stays"}


def test_files_of_a_new_directory_appear_together(tmp_path: Path) -> None:
    with files_together(tmp_path / "new", first="hashes", last="weights") as partial:
        for name in ("hashes", "weights"):
            (partial / name).write_text("new")
        assert not (tmp_path / "new").exists()
    assert tree(tmp_path) == {"new/hashes": b"new", "new/weights": b"new"}


def test_moving_files_goes_on_where_a_kill_ended_it(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    for folder, names in ((source, "bz"), (target, "ay")):
        folder.mkdir()
        for name in names:
            (folder / name).write_text(folder.name)
    move_files(source, target, first="a", last="z")
    assert tree(tmp_path) == {
        **{f"target/{name}": b"target" for name in "ay"},
        **{f"target/{name}": b"source" for name in "bz"},
    }
    assert not source.exists()


def test_a_file_of_the_users_with_a_name_like_ours_stays(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("untouched")
    (tmp_path / ".a.partial").symlink_to(tmp_path / "victim")
    (tmp_path / ".b.partial").mkdir()
    (tmp_path / ".b.partial" / "mine").write_text("untouched")
    before = tree(tmp_path)
    atomic_write_text(tmp_path / "a", "new")
    with atomic_directory(tmp_path / "b") as partial:
        (partial / "c").write_text("new")
    assert tree(tmp_path) == {**before, "a": b"new", "b/c": b"new"}


def test_a_new_file_takes_no_name_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("untouched")
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    for name in ("victim", "link"):
        with pytest.raises(DiskError, match="cannot be written: File exists"):
            GrowingFile(tmp_path / name)
    for write in (lambda path: append_text(path, "x"), lambda path: GrowingFile(path, 0)):
        with pytest.raises(DiskError, match="a link is in its place"):
            write(tmp_path / "link")
    assert (tmp_path / "victim").read_text() == "untouched"


def test_a_grown_file_goes_on_after_its_whole_bytes(tmp_path: Path) -> None:
    with closing(GrowingFile(tmp_path / "a")) as file:
        file.write(b"wholehal")
    with closing(GrowingFile(tmp_path / "a", 5)) as file:
        file.write(b"!")
        file.replace_head(b"W")
        file.write(b"?")
        assert file.sync() == file.size == 7
        assert (tmp_path / "a").read_bytes() == b"Whole!?"
    with pytest.raises(DiskError, match="8 were written, 7 are there"):
        GrowingFile(tmp_path / "a", 8)


def full_after(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that takes ``size`` bytes of the next write, and then nothing."""
    write, room = os.write, size

    def limited(descriptor: int, data: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = write(descriptor, data[:room])
        room -= taken
        return taken

    monkeypatch.setattr(os, "write", limited)


def test_a_line_is_appended_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_text(tmp_path / "log", "one\n")
    with monkeypatch.context() as patch:
        full_after(2, patch)
        with pytest.raises(DiskError, match=r"log cannot be written: No space left .* are free"):
            append_text(tmp_path / "log", "two\n")
    append_text(tmp_path / "log", "three\n")
    assert (tmp_path / "log").read_text() == "one\nthree\n"


def test_a_full_disk_names_the_file_and_keeps_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")

    def write(name: str, error: OSError) -> None:
        with atomic_directory(tmp_path / name) as partial, atomic_file(partial / "deep") as file:
            file.write_text("half")
            raise error

    with pytest.raises(DiskError, match=r"a/?.* cannot be written: No space .* free there; make"):
        write("a", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    # An error about another file, which the block reads, says nothing about this one.
    with pytest.raises(FileNotFoundError):
        write("b", FileNotFoundError(errno.ENOENT, "no such file", str(tmp_path / "input")))
    assert tree(tmp_path) == {"a": b"old"}
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_room_is_asked_for_before_the_work(tmp_path: Path) -> None:
    require_room(tmp_path / "not" / "made", 1, "the model")
    with pytest.raises(
        DiskError, match=r"the model needs? 1,000,000,000.0 GB in .* are free: make"
    ):
        require_room(tmp_path, 10**18, "the model needs")


def test_a_directory_appears_and_is_replaced_as_a_whole(tmp_path: Path) -> None:
    target = tmp_path / "runs" / "step-1"
    for name in ("old", "new"):
        with atomic_directory(target) as partial:
            (partial / "deep").mkdir()
            (partial / "deep" / name).write_text(name)
            assert target.exists() == (name == "new")
    assert tree(tmp_path) == {"runs/step-1/deep/new": b"new"}
    assert list(target.parent.iterdir()) == [target]


def test_a_directory_below_an_owned_one_gets_its_parents(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with output_lock(run), atomic_directory(run / "made" / "below") as partial:
        (partial / "a").write_bytes(b"x")
    assert tree(run) == {"made/below/a": b"x"}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.parametrize("is_kill", [False, True])
@pytest.mark.parametrize(
    ("failing", "is_after", "expected"),
    [(1, False, "old"), (1, True, "old"), (2, False, "old"), (2, True, "new")],
)
def test_a_directory_survives_a_fault_at_a_rename(
    failing: int, is_after: bool, expected: str, is_kill: bool, tmp_path: Path
) -> None:
    target = tmp_path / "step-1"
    with atomic_directory(target) as partial:
        (partial / "a").write_text("old")
    child = os.fork()
    if not child:
        rename, calls = Path.rename, count(1)

        def fail(self: Path, target: Path) -> Path:
            is_now = next(calls) == failing
            renamed = rename(self, target) if is_after or not is_now else self
            if is_now and is_kill:
                os._exit(0)
            if is_now:
                raise Interruption
            return renamed

        Path.rename = fail  # type: ignore[method-assign]
        with suppress(Interruption), atomic_directory(target) as partial:
            (partial / "a").write_text("new")
        os._exit(0)
    os.waitpid(child, 0)
    if is_kill:
        with output_lock(target):
            pass
    assert tree(tmp_path) == {"step-1/a": expected.encode()}
    assert list(tmp_path.iterdir()) == [target]


@given(st.binary(max_size=1000))
def test_sha256_is_that_of_hashlib(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("hash") / "a"
    atomic_write_bytes(path, data)
    assert file_sha256(path) == hashlib.sha256(data).hexdigest()
