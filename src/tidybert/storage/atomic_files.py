"""Files and directories that are whole or absent, whatever interrupts the writing.

This is the one place that writes to the disk.  A file or directory with a final name is written
aside, synced and renamed; then the rename is synced.  What is written aside has a random name and
is opened only if nothing has that name.  A kill may leave it: the next owner of the output's lock
(``output_lock``) removes it.  An OSError becomes a DiskError, and the target stays as it was.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from tidybert.errors import DiskError
from tidybert.storage import output_lock as locks
from tidybert.storage.disk_errors import amount, free_bytes, writing
from tidybert.storage.json_objects import plain_json
from tidybert.storage.opening import open_regular

# Directories that this process is filling: as a whole they get their names later.
_FILLING: set[Path] = set()


def require_room(folder: str | Path, num_bytes: int, purpose: str) -> None:
    """Raise DiskError unless ``folder``, which need not exist yet, has this much room.

    ``purpose`` begins the message: "the checkpoints and the model need".
    """
    free = free_bytes(folder)
    if free is not None and free < num_bytes:
        raise DiskError(
            f"{purpose} {amount(num_bytes)} in {folder}, where {amount(free)} are free: make "
            "room, or name another place"
        )


def remove_tree(path: str | Path) -> None:
    """Remove a file, a link or a directory tree, if it is there."""
    with writing(path, "be removed"):
        locks.remove_tree(Path(path))


def make_directory(path: str | Path) -> None:
    """Make a directory and its missing parents, unless it is there."""
    with writing(path, "be made"):
        Path(path).mkdir(parents=True, exist_ok=True)


def sync(path: str | Path) -> None:
    """Wait until the file or directory ``path`` itself is on the disk."""
    # Windows cannot open a directory, and syncs its entries by itself.
    if os.name != "posix" and Path(path).is_dir():
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(directory: str | Path) -> None:
    """Wait until every file and directory under ``directory``, and itself, is on the disk."""
    for root, _, names in os.walk(directory):
        for name in names:
            sync(Path(root, name))
        sync(root)


def move_files(source: Path, directory: Path, *, last: str) -> None:
    """Move all files of ``source`` into ``directory``, ``last`` at the end; remove ``source``.

    A second call goes on where a kill ended the first one.
    """
    with writing(directory):
        for path in sorted(source.iterdir(), key=lambda each: each.name == last):
            if path.name == last:
                sync(directory)
            path.replace(directory / path.name)
        sync(directory)
        source.rmdir()


def open_new(path: str | Path) -> BinaryIO:
    """Open a new file for writing; DiskError where anything has that name, a link too."""
    with writing(path):
        return open(_descriptor(path, os.O_RDWR | os.O_CREAT | os.O_EXCL), "r+b")


def open_grown(path: str | Path, size: int) -> BinaryIO:
    """Open a file that was being written, cut to its first ``size`` bytes, to write on.

    Raises DiskError where it is shorter, or a link.
    """
    with writing(path):
        descriptor = _descriptor(path, os.O_RDWR)
        try:
            found = os.fstat(descriptor).st_size
            if found < size:
                raise DiskError(f"{path} has lost bytes: {size} were written, {found} are there")
            os.ftruncate(descriptor, size)
            os.lseek(descriptor, 0, os.SEEK_END)
            return os.fdopen(descriptor, "r+b")
        except BaseException:
            os.close(descriptor)
            raise


def append_text(path: str | Path, text: str) -> None:
    """Add ``text`` to the end of a file, which is made if it is not there: all of it, or nothing.

    A kill may leave a part of it.
    """
    data = text.encode("utf-8")
    with writing(path):
        descriptor = _descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            size = os.fstat(descriptor).st_size
            try:
                written = os.write(descriptor, data)
                # A disk that becomes full takes a part first, and says so at the second call.
                while written < len(data):
                    written += os.write(descriptor, data[written:])
            except OSError:
                os.ftruncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)


def _descriptor(path: str | Path, flags: int) -> int:
    """Open, but follow no link."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0), 0o666)


def rename_synced(source: Path, target: Path) -> None:
    """Rename a finished file to ``target``, in the same folder; both are then on the disk."""
    with writing(target):
        sync(source)
        source.replace(target)
        sync(target.parent)


def check_absent(target: Path, source: Path) -> None:
    """Raise DiskError if something has the name ``target`` by now; ``source`` has the work."""
    if os.path.lexists(target):
        raise DiskError(
            f"{target} was made by somebody else in the meantime, and is left as it is; the "
            f"finished work is {source}"
        )


def _is_filling(target: Path) -> bool:
    """Whether a directory above ``target`` still has a temporary name."""
    return bool(_FILLING) and not _FILLING.isdisjoint(target.parents)


@contextmanager
def atomic_file(target: str | Path) -> Iterator[Path]:
    """Give the path of an empty file to write; when the block ends it becomes ``target``.

    Replaces an existing ``target`` in one step.  After an error ``target`` is unchanged and the
    partial file is removed.  The folder of ``target`` must exist.  In a block of
    ``atomic_directory`` or ``files_together`` the path is ``target`` itself, which must be new.

    Raises DiskError, also for an OSError of the block about this file, and InUseError where another
    process writes ``target``.
    """
    target = locks.resolved(target)
    if _is_filling(target):
        open_new(target).close()
        with writing(target):
            yield target
        return
    with locks.output_lock(target) as lock, writing(target):
        partial = lock.temporary(target)
        try:
            open_new(partial).close()
            yield partial
            rename_synced(partial, target)
        except BaseException:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
            raise


def atomic_write_bytes(target: str | Path, data: bytes) -> None:
    """Write ``data`` to ``target``, which then holds all of it or, after an error, is unchanged."""
    with atomic_file(target) as partial:
        partial.write_bytes(data)


def atomic_write_text(target: str | Path, text: str) -> None:
    """Write ``text`` like ``atomic_write_bytes``, in UTF-8 and with its line ends unchanged."""
    atomic_write_bytes(target, text.encode("utf-8"))


def atomic_write_json(target: str | Path, content: Any) -> None:
    """Write ``content`` like ``atomic_write_bytes``, as indented JSON in ASCII.

    A number that is not finite becomes null.
    """
    # In ASCII: a path that is not UTF-8 is a string that has no UTF-8 either.
    atomic_write_text(target, json.dumps(plain_json(content), indent=2, allow_nan=False) + "\n")


@contextmanager
def atomic_directory(target: str | Path) -> Iterator[Path]:
    """Give an empty directory to fill; when the block ends without error it becomes ``target``.

    Makes missing parents.  Replaces an existing ``target`` as a whole: moves the old one away and
    the new one in.  A kill between the two leaves no ``target``, never a mixed one; the next owner
    of its lock puts the old one back.  After an error ``target`` is unchanged and the partial
    directory is removed.

    Raises DiskError, also for an OSError of the block about these files, and InUseError where
    another process writes ``target``.
    """
    target = locks.resolved(target)
    with locks.output_lock(target) as lock, writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        replaced = lock.temporary(target, locks.REPLACED)
        with _filled(lock.temporary(target)) as partial:
            yield partial
            sync_tree(partial)
            if os.path.lexists(target):
                target.rename(replaced)
            try:
                partial.rename(target)
            except BaseException:
                if os.path.lexists(replaced):
                    replaced.rename(target)
                raise
            sync(target.parent)
        locks.remove_tree(replaced)


@contextmanager
def files_together(directory: str | Path, *, first: str, last: str) -> Iterator[Path]:
    """Give an empty directory to fill; its files then move into ``directory``, one by one.

    All are on the disk before one moves.  The file ``first`` moves before the others, so that its
    hashes of them show a kill in between; ``last`` is the one that takes longest to replace.  Other
    files in ``directory`` stay.  An error before the first move leaves ``directory`` unchanged.

    Raises DiskError, also for an OSError of the block about these files, and InUseError where
    another process writes ``directory``.
    """
    directory = locks.resolved(directory)
    with locks.output_lock(directory) as lock, writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        with _filled(lock.temporary(directory / "model")) as partial:
            yield partial
            sync_tree(partial)
            (partial / first).replace(directory / first)
            # The new hashes must be on the disk before any file that they describe.
            sync(directory)
            for name in sorted(path.name for path in partial.iterdir() if path.name != last):
                (partial / name).replace(directory / name)
            (partial / last).replace(directory / last)
            sync(directory)


@contextmanager
def _filled(partial: Path) -> Iterator[Path]:
    """A new directory, which is removed at the end if it still has its name."""
    try:
        partial.mkdir()
        _FILLING.add(partial)
        yield partial
    finally:
        _FILLING.discard(partial)
        with suppress(OSError):
            locks.remove_tree(partial)


def file_sha256(path: str | Path) -> str:
    """The sha256 of a regular file's content, in hexadecimal; raises as ``open_regular``."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
