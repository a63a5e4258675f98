"""The file of a lock: taken for this process, or refused because another one has it.

The lock of DIR/NAME is DIR/.NAME.tidybert-lock.  The kernel holds it (flock) and lets go of it when
its owner dies.  On a file system without such locks the owner's process number decides.
"""

import os
import stat
import sys
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from tidybert.errors import DiskError, InUseError
from tidybert.storage.disk_errors import disk_error, writing
from tidybert.storage.lock_owner import Owner
from tidybert.storage.own_files import open_own, write_all

if sys.platform != "win32":
    import fcntl

LOCK_SUFFIX: Final = ".tidybert-lock"
_MOST_BYTES: Final = 65536


class LockFile:
    """A lock that this process has; ``before`` is its last owner, None where it is new."""

    def __init__(self, path: Path, descriptor: int, before: Owner | None) -> None:
        self.path, self.descriptor, self.before = path, descriptor, before
        self._text = b"" if before is None else before.line()

    def write(self, owner: Owner) -> None:
        """Write the owner into the lock."""
        # The first line counts, and one call writes it: a kill leaves the text before or this one.
        with writing(self.path):
            try:
                self._overwrite(owner.line())
            except OSError:
                # A full disk may have taken a part.
                self._overwrite(self._text)
                raise
        self._text = owner.line()

    def _overwrite(self, text: bytes) -> None:
        os.lseek(self.descriptor, 0, os.SEEK_SET)
        write_all(self.descriptor, text)
        os.ftruncate(self.descriptor, len(text))

    def close(self) -> None:
        """Let go of the lock; one that had no owner yet is removed."""
        if not self._text:
            with suppress(OSError):
                self.path.unlink()
        os.close(self.descriptor)


def take_lock(target: Path) -> LockFile:
    """The lock of ``target``, whose last owner, if any, has ended.

    Raises InUseError where it has not, and DiskError where the lock cannot be opened.
    """
    path = _path_of(target)
    while True:
        descriptor = _open(path, target)
        try:
            is_free = _flock(descriptor)
            # Its owner may have removed the file after we opened it.
            if not is_free or _is_there(path, descriptor):
                before = _read(descriptor, path)
                _check_free(target, path, is_free, before)
                return LockFile(path, descriptor, before)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _path_of(target: Path) -> Path:
    """Where the lock is: beside ``target``, or in a directory whose parent is write-protected."""
    if target.is_dir() and not os.access(target.parent, os.W_OK | os.X_OK):
        return target / LOCK_SUFFIX
    name = target.name
    if len(os.fsencode(name)) > 200:
        name = sha256(os.fsencode(name)).hexdigest()
    return target.with_name(f".{name}{LOCK_SUFFIX}")


def _open(path: Path, target: Path) -> int:
    try:
        # A pipe in its place is not waited for.
        descriptor = open_own(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        # Where no lock can be made, no output can: the message is about the output.
        raise disk_error(error, path if os.path.lexists(path) else target) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DiskError(f"{path} is not a regular file: remove it, so that tidybert can lock there")
    return descriptor


def _flock(descriptor: int) -> bool | None:
    """Whether the kernel gives us the lock; None where it has no locks for this file system."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_there(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _read(descriptor: int, path: Path) -> Owner | None:
    """The owner in a lock, or None for an empty file."""
    line = os.read(descriptor, _MOST_BYTES).partition(b"\n")[0]
    owner = Owner.from_line(line) if line else None
    if line and owner is None:
        raise DiskError(
            f"{path} is not a lock of tidybert: remove it, so that tidybert can lock there"
        )
    return owner


def _check_free(target: Path, path: Path, is_free: bool | None, owner: Owner | None) -> None:
    if is_free is not False and (owner is None or owner.has_ended(is_free)):
        return
    by = "another process" if owner is None else owner
    way = "" if is_free is False else f"; if you know that it has ended, remove {path}"
    raise InUseError(f"{target} is in use by {by}: wait until it ends, or name another output{way}")
