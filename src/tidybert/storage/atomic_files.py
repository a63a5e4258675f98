"""Files and directories that are whole or absent, whatever interrupts the writing.

Three of the four ways to write are here: replace a file, replace a directory (or the files in it),
append a line; ``part_file`` has the fourth.  What gets a final name is written aside under a random
name, synced and renamed; then the rename is synced.  A kill may leave what is aside: the next owner
of the output's lock removes it.  An OSError becomes a DiskError, and the target stays as it was.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from tidybert.errors import DiskError
from tidybert.storage.json_objects import plain_json
from tidybert.storage.opening import open_regular
from tidybert.storage.output_lock import REPLACED, OutputLock, output_lock, resolved
from tidybert.storage.own_files import (
    move_files,
    open_own,
    remove_tree,
    rename_synced,
    sync,
    sync_tree,
    write_all,
    writing,
)

# Directories that this process is filling: as a whole they get their names later.
_FILLING: set[Path] = set()


@contextmanager
def atomic_file(target: str | Path, lock: OutputLock | None = None) -> Iterator[Path]:
    """Give the path of an empty file to write; when the block ends it becomes ``target``.

    Replaces an existing ``target`` in one step.  After an error ``target`` is unchanged and the
    partial file is removed.  The folder of ``target`` must exist.  In a block of
    ``atomic_directory`` or ``files_together`` the path is ``target`` itself, which must be new.
    ``lock`` is that of the output which ``target`` belongs to, if it is no output by itself.

    Raises DiskError, also for an OSError of the block about this file, and InUseError where another
    process writes ``target``.
    """
    target = resolved(target)
    is_filling = not _FILLING.isdisjoint(target.parents)
    locked: AbstractContextManager[OutputLock | None] = (
        nullcontext(lock) if lock or is_filling else output_lock(target)
    )
    with locked as held, writing(target):
        partial = target if held is None else held.temporary(target)
        try:
            os.close(open_own(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
            yield partial
            if held is not None:
                rename_synced(partial, target)
        except BaseException:
            if held is not None:
                with suppress(OSError):
                    partial.unlink(missing_ok=True)
            raise


def atomic_write_bytes(
    target: str | Path, data: bytes | bytearray, lock: OutputLock | None = None
) -> None:
    """Write ``data`` to ``target``, which then holds all of it or, after an error, is unchanged."""
    with atomic_file(target, lock) as partial:
        partial.write_bytes(data)


def atomic_write_text(target: str | Path, text: str) -> None:
    """Write ``text`` like ``atomic_write_bytes``, in UTF-8 and with its line ends unchanged."""
    atomic_write_bytes(target, text.encode("utf-8"))


def atomic_write_json(target: str | Path, content: Any, lock: OutputLock | None = None) -> None:
    """Write ``content`` like ``atomic_write_bytes``, as indented JSON in ASCII, NaN as null."""
    # In ASCII: a path that is not UTF-8 is a string that has no UTF-8 either.
    text = json.dumps(plain_json(content), indent=2, allow_nan=False) + "\n"
    atomic_write_bytes(target, text.encode("ascii"), lock)


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
    target = resolved(target)
    with output_lock(target) as lock, writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        replaced = lock.temporary(target, REPLACED)
        with _filled(lock.temporary(target)) as partial:
            yield partial
            sync_tree(partial)
            try:
                if os.path.lexists(target):
                    target.rename(replaced)
                partial.rename(target)
                sync(target.parent)
            finally:
                # A signal may come after each of them.
                if os.path.lexists(replaced) and not os.path.lexists(target):
                    replaced.rename(target)
                remove_tree(replaced)


@contextmanager
def files_together(directory: str | Path, *, first: str, last: str) -> Iterator[Path]:
    """Give an empty directory to fill; its files then move into ``directory``, one by one.

    Where there is no ``directory`` yet, it appears as a whole.  Otherwise all files are on the disk
    before one moves.  The file ``first`` moves before the others, so that its hashes of them show a
    kill in between; ``last`` is the one that takes longest to replace.  Other files in
    ``directory`` stay.  An error before the first move leaves ``directory`` unchanged.

    Raises DiskError, also for an OSError of the block about these files, and InUseError where
    another process writes ``directory``.
    """
    directory = resolved(directory)
    with output_lock(directory) as lock, writing(directory):
        if not os.path.lexists(directory):
            with atomic_directory(directory) as partial:
                yield partial
            return
        with _filled(lock.temporary(directory / "model")) as partial:
            yield partial
            sync_tree(partial)
            move_files(partial, directory, first=first, last=last)


@contextmanager
def _filled(partial: Path) -> Iterator[Path]:
    """A new directory, which is removed at the end if it still has its name."""
    try:
        partial.mkdir()
        _FILLING.add(partial)
        yield partial
    finally:
        _FILLING.discard(partial)
        with suppress(DiskError):
            remove_tree(partial)


def append_text(
    path: str | Path, text: str, *, encoding: str = "utf-8", is_synced: bool = False
) -> None:
    """Add ``text`` to the end of a file, which may be new: all or nothing, but for a kill.

    ``is_synced``: return once it is on the disk.
    """
    with writing(path):
        descriptor = open_own(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            size = os.fstat(descriptor).st_size
            try:
                write_all(descriptor, text.encode(encoding))
                if is_synced:
                    os.fsync(descriptor)
            except OSError:
                os.ftruncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)


def file_sha256(path: str | Path) -> str:
    """The sha256 of a regular file's content, in hexadecimal; raises as ``open_regular``."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
