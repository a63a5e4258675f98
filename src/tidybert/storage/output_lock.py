"""One process writes an output at a time, and the next one clears up after a dead one.

The lock of an output (``lock_file``) says who its owner is (``lock_owner``), with a token that is
in the names of all temporary files of the owner (``leftovers``).  A clean end removes the lock,
unless a part of a file waits to be resumed.  docs/storage.md has the whole protocol.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import count
from pathlib import Path
from typing import Final

from tidybert.errors import DiskError
from tidybert.storage.leftovers import (
    PART,
    PARTIAL,
    clear_leftovers,
    journal_of,
    temporary_path,
)
from tidybert.storage.lock_file import LOCK_SUFFIX, LockFile, take_lock
from tidybert.storage.lock_owner import Owner
from tidybert.storage.own_files import make_directory, remove_tree


@contextmanager
def output_lock(target: str | Path) -> Iterator["OutputLock"]:
    """Within the block this process alone writes ``target``, a file or a directory.

    Makes missing parents, and removes them again if they stay empty.  A block within the block of
    the same target, or of a directory above it, has the same lock.  Removes what a dead owner left,
    except for parts that can be resumed (see ``OutputLock.part_of``).

    Raises InUseError where another process has the lock, and DiskError where the lock cannot be
    written; nothing has changed then.
    """
    target = resolved(target)
    with _MUTEX:
        lock = next((_HELD[each] for each in (target, *target.parents) if each in _HELD), None)
        if lock is None:
            lock = _HELD[target] = _acquire(target)
        lock.users += 1
    try:
        yield lock
    finally:
        with _MUTEX:
            lock.users -= 1
            if not lock.users and _HELD.get(lock.target) is lock:
                _HELD.pop(lock.target).release()


def resolved(target: str | Path) -> Path:
    """One path for all names of ``target``; a link in its place stays, unless to a directory."""
    target = Path(target)
    if target.is_dir():
        return target.resolve()
    return target.parent.resolve() / target.name


def contents(directory: Path) -> list[Path]:
    """What is in a directory, in order, except for locks."""
    return sorted(
        path for path in directory.iterdir() if not fnmatchcase(path.name, f".*{LOCK_SUFFIX[1:]}")
    )


@dataclass
class OutputLock:
    """A lock that this process holds.  ``ending`` lets go of it."""

    target: Path
    file: LockFile
    owner: Owner
    ending: ExitStack = field(default_factory=ExitStack)
    users: int = 0
    _numbers: Iterator[int] = field(default_factory=count)

    def temporary(self, target: Path, suffix: str = PARTIAL) -> Path:
        """A new name beside ``target``, which nobody can guess and the next owner recognises."""
        return temporary_path(target, self.owner.token, next(self._numbers), suffix)

    def part_of(self, target: Path) -> Path | None:
        """The part of ``target`` that a stopped run has left, or None."""
        part = self._part(self._key(target))
        return part if part is not None and part.is_file() else None

    def new_part(self, target: Path) -> Path:
        """A new name for the part of ``target``; the file stays for the next owner."""
        part = self.temporary(resolved(target), PART)
        self.owner.parts[self._key(target)] = part.name
        self.file.write(self.owner)
        return part

    def drop_part(self, target: Path) -> None:
        """Remove the part of ``target`` and its journal, if they are there."""
        part = self._part(self._key(target))
        if part is not None:
            remove_tree(part)
            remove_tree(journal_of(part))
            del self.owner.parts[self._key(target)]
            self.file.write(self.owner)

    def release(self) -> None:
        """Let go of the lock; its file stays where a part waits to be resumed."""
        with self.ending, suppress(OSError, DiskError):
            parts = [part for key in self.owner.parts if (part := self._part(key))]
            if any(part.is_file() or journal_of(part).is_file() for part in parts):
                self.owner.pid = 0
                self.file.write(self.owner)
            else:
                self.file.path.unlink()

    def _key(self, target: Path) -> str:
        return os.path.relpath(resolved(target), self.target.parent)

    def _part(self, key: str) -> Path | None:
        name = self.owner.parts.get(key)
        return None if name is None else (self.target.parent / key).with_name(name)


_MUTEX = threading.RLock()
_HELD: Final[dict[Path, OutputLock]] = {}


def _forget() -> None:
    """In a forked process: the locks are its parent's."""
    global _MUTEX
    _MUTEX = threading.RLock()
    for lock in _HELD.values():
        os.close(lock.file.descriptor)
    _HELD.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _acquire(target: Path) -> OutputLock:
    with ExitStack() as undo:
        folders = (target.parent, *target.parent.parents)
        # Those that are missing go again if they stay empty, the deepest first.
        for folder in reversed([each for each in folders if not each.exists()]):
            undo.callback(_remove_if_empty, folder)
        make_directory(target.parent)
        file = take_lock(target)
        undo.callback(file.close)
        # The files of the dead owner are gone before its token is.
        if file.before is not None:
            clear_leftovers(target, file.before.token)
        owner = Owner.this_process({} if file.before is None else file.before.parts)
        file.write(owner)
        return OutputLock(target, file, owner, undo.pop_all())


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()
