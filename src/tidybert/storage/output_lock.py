"""One process writes an output at a time, and the next one clears up after a dead one.

The lock of DIR/NAME is the file DIR/.NAME.tidybert-lock.  The kernel holds it (flock) and lets go
of it when its owner dies.  Its text says who the owner is, and has a token.  Every temporary file
of the owner has the token in its name, so whoever takes the lock over finds these files alone.  On
a file system without such locks the owner's process number decides.  A clean end removes the lock,
unless a part of a file waits to be resumed.
"""

import json
import os
import platform
import re
import secrets
import shlex
import shutil
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Final

from tidybert.errors import DiskError, InUseError
from tidybert.storage.disk_errors import disk_error, writing

if sys.platform != "win32":
    import fcntl

PARTIAL: Final = ".partial"
REPLACED: Final = ".replaced"
PART: Final = ".part"
_SUFFIX: Final = ".tidybert-lock"
_MOST_BYTES: Final = 65536
_LONGEST_NAME: Final = 40


@contextmanager
def output_lock(target: str | Path) -> Iterator["OutputLock"]:
    """Within the block this process alone writes ``target``, a file or a directory.

    Makes missing parents, and removes them again if they stay empty.  A block within the block of
    the same target, or of a directory above it, has the same lock.  Removes what a dead owner left,
    but for parts that can be resumed (see ``OutputLock.part_of``).

    Raises InUseError where another process has the lock, and DiskError where the lock cannot be
    written; nothing has changed then.
    """
    target = resolved(target)
    with _MUTEX:
        lock = covering_lock(target)
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


def covering_lock(target: Path) -> "OutputLock | None":
    """The lock that this process has on ``target`` (resolved) or on a directory above it.

    The lock of an output is that of its part's journal too: a kill would leave a lock of its own.
    """
    covering = (_HELD[each] for each in (target, *target.parents) if each in _HELD)
    return next(covering, None) or next(
        (each for each in list(_HELD.values()) if target in each.journals()), None
    )


def is_lock(path: Path) -> bool:
    """Whether a file is a lock, by its name; it does not count as content of a directory."""
    return path.name.startswith(".") and path.name.endswith(_SUFFIX)


def contents(directory: Path) -> list[Path]:
    """What is in a directory, in order, but for locks."""
    return sorted(path for path in directory.iterdir() if not is_lock(path))


def journal_of(part: Path) -> Path:
    """The file beside a part that says how much of it is whole."""
    return part.with_name(f"{part.name}.json")


@dataclass
class Owner:
    """The text of a lock.

    pid: 0 where nobody writes and parts wait.  boot: names the running kernel, which all containers
    of a machine share.  parts: from outputs
    that are not finished to the names of their parts; paths from the folder of the lock's target.
    """

    pid: int
    host: str
    boot: str
    started: str
    command: str
    token: str
    parts: dict[str, str] = field(default_factory=dict)

    def line(self) -> bytes:
        """The text of the lock's file."""
        return (json.dumps(asdict(self)) + "\n").encode()

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.started} ({self.command})"


@dataclass
class OutputLock:
    """A lock that this process holds.

    made: the folders that it made.  written: the text of the file.
    """

    target: Path
    path: Path
    descriptor: int
    owner: Owner
    made: list[Path]
    written: bytes
    users: int = 0
    _numbers: Iterator[int] = field(default_factory=count)

    def temporary(self, target: Path, suffix: str = PARTIAL) -> Path:
        """A new name beside ``target``, which nobody can guess and the next owner recognises."""
        # Only what is put back needs its whole name.
        name = target.name if suffix == REPLACED else target.name[:_LONGEST_NAME]
        return target.with_name(f".{name}.{self.owner.token}-{next(self._numbers)}{suffix}")

    def part_of(self, target: Path) -> Path | None:
        """The part of ``target`` that a stopped run has left, or None."""
        key = self._key(target)
        part = self._part(key) if key in self.owner.parts else None
        return part if part is not None and part.is_file() else None

    def new_part(self, target: Path) -> Path:
        """A new name for the part of ``target``; the file stays for the next owner."""
        key = self._key(target)
        self.owner.parts[key] = self.temporary(resolved(target), PART).name
        self.write()
        return self._part(key)

    def journals(self) -> list[Path]:
        """The journals of the parts that wait or grow."""
        return [journal_of(self._part(key)) for key in self.owner.parts]

    def drop_part(self, target: Path) -> None:
        """Remove the part of ``target`` and its journal, if they are there."""
        key = self._key(target)
        if key in self.owner.parts:
            part = self._part(key)
            with writing(part, "be removed"):
                part.unlink(missing_ok=True)
                journal_of(part).unlink(missing_ok=True)
            del self.owner.parts[key]
            self.write()

    def write(self) -> None:
        """Write the owner into the lock."""
        # The first line counts, and one call writes it: a kill leaves the text before or this one.
        text = self.owner.line()
        with writing(self.path):
            try:
                self._overwrite(text)
            except OSError:
                # A full disk may have taken a part.
                self._overwrite(self.written)
                raise
        self.written = text

    def _overwrite(self, text: bytes) -> None:
        os.lseek(self.descriptor, 0, os.SEEK_SET)
        done = 0
        while done < len(text):
            done += os.write(self.descriptor, text[done:])
        os.ftruncate(self.descriptor, len(text))

    def release(self) -> None:
        """Let go of the lock; its file stays where a part waits to be resumed."""
        with suppress(OSError, DiskError):
            parts = [self._part(key) for key in self.owner.parts]
            if any(part.is_file() or journal_of(part).is_file() for part in parts):
                self.owner.pid = 0
                self.write()
            else:
                self.path.unlink()
        os.close(self.descriptor)
        for folder in self.made:
            with suppress(OSError):
                folder.rmdir()

    def _key(self, target: Path) -> str:
        return os.path.relpath(resolved(target), self.target.parent)

    def _part(self, key: str) -> Path:
        return (self.target.parent / key).with_name(self.owner.parts[key])


_MUTEX = threading.RLock()
_HELD: Final[dict[Path, OutputLock]] = {}


def _forget() -> None:
    """In a forked process: the locks are its parent's."""
    global _MUTEX
    _MUTEX = threading.RLock()
    for lock in _HELD.values():
        os.close(lock.descriptor)
    _HELD.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _acquire(target: Path) -> OutputLock:
    made = _make_parents(target.parent)
    path = _path_of(target)
    while True:
        descriptor = _open(path, target)
        try:
            is_free = _take(descriptor)
            before = _read(descriptor, path)
            # Its owner may have removed the file after we opened it.
            if is_free and not _is_there(path, descriptor):
                os.close(descriptor)
                continue
            _check_free(target, path, is_free, before)
            parts = {} if before is None else before.parts
            written = b"" if before is None else before.line()
            lock = OutputLock(target, path, descriptor, _new_owner(parts), made, written)
            # The files of the dead owner are gone before its token is.
            if before is not None:
                _clear(target, before.token)
            try:
                lock.write()
            except BaseException:
                if before is None:
                    with suppress(OSError):
                        path.unlink()
                raise
        except BaseException:
            os.close(descriptor)
            for folder in made:
                with suppress(OSError):
                    folder.rmdir()
            raise
        return lock


def _make_parents(folder: Path) -> list[Path]:
    """Make a folder; returns it and its parents that were missing, the deepest first."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    with writing(folder, "be made"):
        folder.mkdir(parents=True, exist_ok=True)
    return missing


def _path_of(target: Path) -> Path:
    """Where the lock is: beside ``target``, or in a directory whose parent is write-protected."""
    if target.is_dir() and not os.access(target.parent, os.W_OK | os.X_OK):
        return target / _SUFFIX
    name = target.name
    if len(os.fsencode(name)) > 200:
        name = sha256(os.fsencode(name)).hexdigest()
    return target.with_name(f".{name}{_SUFFIX}")


def _open(path: Path, target: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT
    # Nothing but a regular file is opened: no link is followed, and no pipe waited for.
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"):
        flags |= getattr(os, name, 0)
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        # Where no lock can be made, no output can: the message is about the output.
        raise disk_error(error, path if os.path.lexists(path) else target) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DiskError(f"{path} is not a regular file: remove it, so that tidybert can lock there")
    return descriptor


def _take(descriptor: int) -> bool | None:
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


def _read(descriptor: int, path: Path) -> Owner | None:
    """The owner in a lock, or None for an empty file."""
    text = os.read(descriptor, _MOST_BYTES).partition(b"\n")[0]
    if not text:
        return None
    try:
        owner = Owner(**json.loads(text))
        if not (re.fullmatch("[0-9a-f]{12}", owner.token) and _are_names(owner.parts)):
            raise ValueError
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise DiskError(
            f"{path} is not a lock of tidybert: remove it, so that tidybert can lock there"
        ) from None
    return owner


def _are_names(parts: dict[str, str]) -> bool:
    """Whether parts are what ``new_part`` writes: a lock must not make us remove other files."""
    return all(
        not Path(key).is_absolute()
        and os.pardir not in Path(key).parts
        and re.fullmatch(r"\..*\.[0-9a-f]{12}-[0-9]+\.part", name, re.DOTALL)
        and Path(name).name == name
        for key, name in parts.items()
    )


def _is_there(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _check_free(target: Path, path: Path, is_free: bool | None, owner: Owner | None) -> None:
    """Raise InUseError unless the lock is ours to take.

    The kernel knows who is alive on this machine.  A lock of another machine may not reach it.
    """
    if is_free is False:
        by = "another process" if owner is None else str(owner)
        raise InUseError(f"{target} is in use by {by}: wait until it ends, or name another output")
    if owner is None or not owner.pid:
        return
    if owner.boot == _boot():
        is_dead = is_free or not _is_alive(owner.pid)
    else:
        # The same machine has started since then.
        is_dead = owner.host == platform.node()
    if not is_dead:
        raise InUseError(
            f"{target} is in use by {owner}: wait until it ends, or name another output; if you "
            f"know that it has ended, remove {path}"
        )


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return platform.node()


def _new_owner(parts: dict[str, str]) -> Owner:
    return Owner(
        pid=os.getpid(),
        host=platform.node(),
        boot=_boot(),
        started=datetime.now().astimezone().isoformat(sep=" ", timespec="seconds"),
        command=_command(),
        token=secrets.token_hex(6),
        parts=parts,
    )


def _command() -> str:
    name = Path(sys.argv[0]).name
    return shlex.join(["tidybert" if name == "__main__.py" else name, *sys.argv[1:]])[:200]


def _clear(target: Path, token: str) -> None:
    """Remove what the owner of ``token`` left unfinished, beside ``target`` and in it."""
    name_of = re.compile(rf"\.(.*)\.{token}-[0-9]+({re.escape(PARTIAL)}|{re.escape(REPLACED)})")
    found = list(target.parent.iterdir()) if os.access(target.parent, os.R_OK) else []
    for folder, folders, files in os.walk(target):
        found += [Path(folder, name) for name in (*folders, *files)]
    for path in found:
        match = name_of.fullmatch(path.name)
        if match is None:
            continue
        original = path.with_name(match[1])
        with writing(path, "be removed"):
            if match[2] == REPLACED and not os.path.lexists(original):
                path.rename(original)
            else:
                remove_tree(path)


def remove_tree(path: Path) -> None:
    """Remove a file, a link or a directory tree, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
