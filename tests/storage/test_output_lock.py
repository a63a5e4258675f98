"""Two processes never write one output; what a dead one left is found, and nothing else is."""

import errno
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from tidybert.errors import DiskError, InUseError
from tidybert.storage import output_lock as file_module
from tidybert.storage import output_lock as owner_module
from tidybert.storage.atomic_files import atomic_directory, atomic_file, atomic_write_text
from tidybert.storage.output_lock import REPLACED, contents, journal_of, output_lock

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="forks")


def lock_file(target: Path) -> Path:
    return target.with_name(f".{target.name}.tidybert-lock")


@contextmanager
def other_process(target: Path, *, partials: bool = False) -> Iterator[int]:
    """A forked process that holds the lock until it is killed at the end of the block."""
    ready, told = os.pipe()
    child = os.fork()
    if not child:
        with output_lock(target) as lock:
            if partials:
                lock.temporary(target).write_text("half")
                target.mkdir()
                lock.temporary(target / "step").mkdir()
                (target / "old").mkdir()
                (target / "old").rename(lock.temporary(target / "old", REPLACED))
                lock.new_part(target / "vectors").write_text("part")
            os.write(told, b"x")
            signal.pause()
    os.read(ready, 1)
    try:
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(told)


def test_a_clean_end_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "down" / "run"
    with output_lock(target):
        assert lock_file(target).is_file()
        assert contents(target.parent) == []
    assert not list(tmp_path.iterdir())


def test_a_second_process_is_told_who_writes_and_changes_nothing(tmp_path: Path) -> None:
    target = tmp_path / "run"
    with other_process(target) as pid:
        before = lock_file(target).read_bytes()
        for attempt in (output_lock, atomic_file, atomic_directory):
            with (
                pytest.raises(InUseError, match=rf"in use by process {pid} on .* since 20.*: wait"),
                attempt(target),
            ):
                pass
        assert lock_file(target).read_bytes() == before
        # A link to the folder, or a way with .., is the same output.
        (tmp_path / "link").symlink_to(tmp_path)
        with pytest.raises(InUseError), output_lock(tmp_path / "link" / "run"):
            pass
        assert sorted(path.name for path in tmp_path.iterdir()) == [lock_file(target).name, "link"]
    with output_lock(target):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def test_a_dead_owners_lock_and_unfinished_files_are_taken_over(tmp_path: Path) -> None:
    target = tmp_path / "run"
    for name in (".run.partial", ".run.0123456789ab-0.partial", "run.part", "run.part.json"):
        (tmp_path / name).write_text("of the user")
    mine = sorted(tmp_path.iterdir())
    with other_process(target, partials=True):
        pass
    with output_lock(target) as lock:
        assert sorted(tmp_path.iterdir()) == sorted([*mine, target, lock_file(target)])
        part = lock.part_of(target / "vectors")
        assert part is not None
        assert sorted(target.iterdir()) == sorted([target / "old", part])
        journal_of(part).write_text("{}")
        lock.drop_part(target / "vectors")
    assert sorted(tmp_path.iterdir()) == sorted([*mine, target])
    assert list(target.iterdir()) == [target / "old"]


def test_the_lock_of_a_part_waits_without_an_owner(tmp_path: Path) -> None:
    target = tmp_path / "v.npy"
    with output_lock(target) as lock:
        lock.new_part(target).write_text("part")
    assert json.loads(lock_file(target).read_text())["pid"] == 0
    with output_lock(target) as lock:
        assert lock.part_of(target) is not None
        lock.drop_part(target)
    assert not list(tmp_path.iterdir())


def test_blocks_within_one_process_share_the_lock(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with output_lock(run) as lock:
        with output_lock(run) as same, output_lock(run / "trials" / "a") as within:
            assert same is within is lock
        run.mkdir()
        atomic_write_text(run / "a", "whole")
        assert {path.name for path in run.iterdir()} == {"a"}
        child = os.fork()
        if not child:
            try:
                with output_lock(run):
                    os._exit(1)
            except InUseError:
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0, "a forked process does not have its parent's lock"
        assert lock_file(run).is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("content", ["something of mine\n", '{"pid": 1}\n', "pipe", "link"])
def test_what_is_no_lock_stays(tmp_path: Path, content: str) -> None:
    target, lock = tmp_path / "a", lock_file(tmp_path / "a")
    if content == "pipe":
        os.mkfifo(lock)
    elif content == "link":
        lock.symlink_to("nowhere")
    else:
        lock.write_text(content)
    said = "a link is in its place" if content == "link" else "so that tidybert can lock there"
    with pytest.raises(DiskError, match=said):
        atomic_write_text(target, "new")
    assert list(tmp_path.iterdir()) == [lock]


def test_a_lock_names_no_file_elsewhere_as_a_part(tmp_path: Path) -> None:
    target = tmp_path / "folder" / "a"
    target.parent.mkdir()
    with output_lock(target) as lock:
        lock.new_part(target).write_text("part")
    owner = json.loads(lock_file(target).read_text())
    for parts in ({"../x": owner["parts"]["a"]}, {"a": "../precious"}, {"a": "precious"}):
        lock_file(target).write_text(json.dumps({**owner, "parts": parts}) + "\n")
        with pytest.raises(DiskError, match="is not a lock"), output_lock(target):
            pass


def test_another_machine_decides_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "run"
    with other_process(target):
        pass
    monkeypatch.setattr(owner_module, "_boot", lambda: "another kernel")
    # The same machine after a restart: the owner is dead.
    with output_lock(target):
        kept = lock_file(target).read_text()
    lock_file(target).write_text(kept.replace(owner_module.platform.node(), "elsewhere"))
    monkeypatch.setattr(owner_module, "_boot", lambda: "a third")
    with pytest.raises(
        InUseError, match=r"on elsewhere since .* ended, remove .*run\.tidybert-lock"
    ):
        output_lock(target).__enter__()


def test_without_the_kernels_locks_the_process_number_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_module, "_flock", lambda _descriptor: None)
    target = tmp_path / "run"
    with (
        other_process(target) as pid,
        pytest.raises(InUseError, match=f"process {pid} on .* remove"),
        output_lock(target),
    ):
        pass
    with output_lock(target):
        pass
    assert not list(tmp_path.iterdir())


def test_many_threads_and_processes_take_turns(tmp_path: Path) -> None:
    """No two are inside at once, whatever the moment of taking, removing and taking over."""
    target, inside = tmp_path / "a", tmp_path / "inside"

    def work() -> int:
        done = 0
        while done < 30:
            try:
                with output_lock(target):
                    inside.mkdir()  # fails if somebody is inside
                    inside.rmdir()
                    done += 1
            except InUseError:
                continue
        return 0

    children = []
    for _ in range(3):
        child = os.fork()
        if not child:
            try:
                os._exit(work())
            finally:
                os._exit(1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    assert not list(tmp_path.iterdir())


def test_threads_share_the_lock_until_the_last_one_ends(tmp_path: Path) -> None:
    target = tmp_path / "a"
    first_in, first_may_end = threading.Event(), threading.Event()

    def hold() -> None:
        with output_lock(target):
            first_in.set()
            first_may_end.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    first_in.wait()
    with output_lock(target):
        first_may_end.set()
        thread.join()
        assert lock_file(target).is_file()
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_no_half_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, real, calls = tmp_path / "run", os.write, count()

    def full(descriptor: int, data: bytes) -> int:
        # It takes nine bytes, and then nothing.
        if next(calls):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data[:9])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(DiskError, match="No space left"), output_lock(target):
        pass
    monkeypatch.undo()

    assert list(tmp_path.iterdir()) == []
    with output_lock(target):
        assert not target.exists()
