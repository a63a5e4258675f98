"""One process writes an output at a time, and the next one clears up after a dead one.

The lock of DIR/NAME is the file DIR/.NAME.tidybert-lock.  The kernel holds it (flock) and lets go
of it when its owner dies.  On a file system without such locks the owner's process number decides.
Its text says who the owner is, with a token that is in the names of all temporary files of the
owner.  A clean end removes the lock, unless a part of a file waits to be resumed.  docs/storage.md
has the whole protocol.
"""

import json
import os
import platform
import re
import secrets
import shlex
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Final, Self

from tidybert.errors import DiskError, InUseError, TidyBertError
from tidybert.storage.json_objects import decoded, parse_json
from tidybert.storage.own_files import (
    disk_error,
    make_directory,
    open_own,
    remove_tree,
    write_all,
    writing,
)

if sys.platform != "win32":
    import fcntl

LOCK_SUFFIX: Final = ".tidybert-lock"
_MOST_BYTES: Final = 65536

# Temporary files: ``.NAME.TOKEN-N.partial`` is being written, ``.NAME.TOKEN-N.replaced`` waits for
# its successor, and ``.NAME.TOKEN-N.part`` grows and can be resumed.  TOKEN is the owner's, drawn
# at random.
PARTIAL: Final = ".partial"
REPLACED: Final = ".replaced"
PART: Final = ".part"
_PART_NAME: Final = re.compile(r"\.[^/]*\.[0-9a-f]{12}-[0-9]+\.part")
_LONGEST_NAME: Final = 40


def journal_of(part: Path) -> Path:
    """The file beside a part that says how much of it is whole."""
    return part.with_name(f"{part.name}.json")


@dataclass
class Owner:
    """The text of a lock.

    pid: 0 where nobody writes and parts wait.  boot: names the running kernel, which all containers
    of a machine share.  token: is in the names of the owner's temporary files.  parts: from outputs
    that are not finished to the names of their parts; paths from the folder of the lock's target.
    """

    pid: int
    host: str
    boot: str
    started: str
    command: str
    token: str
    parts: dict[str, str]

    @classmethod
    def this_process(cls, parts: dict[str, str]) -> Self:
        name = Path(sys.argv[0]).name
        return cls(
            pid=os.getpid(),
            host=platform.node(),
            boot=_boot(),
            started=datetime.now().astimezone().isoformat(sep=" ", timespec="seconds"),
            command=shlex.join(["tidybert" if name == "__main__.py" else name, *sys.argv[1:]])[
                :200
            ],
            token=secrets.token_hex(6),
            parts=parts,
        )

    @classmethod
    def from_line(cls, line: bytes) -> Self | None:
        """The owner that ``line`` gave; None for the text of something else."""
        try:
            owner = decoded(parse_json(line.decode(), "a lock"), cls, "a lock")
        except (TidyBertError, UnicodeDecodeError):
            return None
        # A lock must not make us remove other files.
        is_ours = re.fullmatch("[0-9a-f]{12}", owner.token) and all(
            not Path(key).is_absolute()
            and os.pardir not in Path(key).parts
            and _PART_NAME.fullmatch(name)
            and Path(name).name == name
            for key, name in owner.parts.items()
        )
        return owner if is_ours else None

    def line(self) -> bytes:
        return (json.dumps(asdict(self)) + "\n").encode()

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.started} ({self.command})"

    def has_ended(self, is_free: bool | None) -> bool:
        """Whether nobody writes any more.

        ``is_free``: whether the kernel gives us the lock; None where it cannot say.  It knows who
        is alive on this machine; a lock of another machine may not reach it.
        """
        if not self.pid:
            return True
        if self.boot != _boot():
            # The same machine has started since then.
            return self.host == platform.node()
        return is_free or not _is_alive(self.pid)


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
    """A lock that this process holds: ``text`` is in its file.  ``ending`` lets go of it."""

    target: Path
    path: Path
    descriptor: int
    text: bytes
    owner: Owner
    ending: ExitStack = field(default_factory=ExitStack)
    users: int = 0
    _numbers: Iterator[int] = field(default_factory=count)

    def temporary(self, target: Path, suffix: str = PARTIAL) -> Path:
        """A new name beside ``target``, which nobody can guess and the next owner recognises."""
        # Only what is put back needs its whole name.
        name = target.name if suffix == REPLACED else target.name[:_LONGEST_NAME]
        return target.with_name(f".{name}.{self.owner.token}-{next(self._numbers)}{suffix}")

    def part_of(self, target: Path) -> Path | None:
        """The part of ``target`` that a stopped run has left, or None."""
        part = self._part(self._key(target))
        return part if part is not None and part.is_file() else None

    def new_part(self, target: Path) -> Path:
        """A new name for the part of ``target``; the file stays for the next owner."""
        part = self.temporary(resolved(target), PART)
        self.owner.parts[self._key(target)] = part.name
        self.write()
        return part

    def drop_part(self, target: Path) -> None:
        """Remove the part of ``target`` and its journal, if they are there."""
        part = self._part(self._key(target))
        if part is not None:
            remove_tree(part)
            remove_tree(journal_of(part))
            del self.owner.parts[self._key(target)]
            self.write()

    def release(self) -> None:
        """Let go of the lock; its file stays where a part waits to be resumed."""
        with self.ending, suppress(OSError, DiskError):
            parts = [part for key in self.owner.parts if (part := self._part(key))]
            if any(part.is_file() or journal_of(part).is_file() for part in parts):
                self.owner.pid = 0
                self.write()
            else:
                self.path.unlink()

    def write(self) -> None:
        # The first line counts, and one call writes it: a kill leaves the text before or this one.
        with writing(self.path):
            try:
                self._overwrite(self.owner.line())
            except OSError:
                # A full disk may have taken a part.
                self._overwrite(self.text)
                raise
        self.text = self.owner.line()

    def _overwrite(self, text: bytes) -> None:
        os.lseek(self.descriptor, 0, os.SEEK_SET)
        write_all(self.descriptor, text)
        os.ftruncate(self.descriptor, len(text))

    def close(self) -> None:
        """Let the kernel's lock go; a file that had no owner yet is removed."""
        if not self.text:
            with suppress(OSError):
                self.path.unlink()
        os.close(self.descriptor)

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
        os.close(lock.descriptor)
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
        path, descriptor, before = _take(target)
        owner = Owner.this_process({} if before is None else before.parts)
        text = b"" if before is None else before.line()
        lock = OutputLock(target, path, descriptor, text, owner)
        undo.callback(lock.close)
        # The files of the dead owner are gone before its token is.
        if before is not None:
            _clear_leftovers(target, before.token)
        lock.write()
        lock.ending = undo.pop_all()
        return lock


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def _take(target: Path) -> tuple[Path, int, Owner | None]:
    """The lock of ``target``, a descriptor of it, and its last owner, who must have ended."""
    if target.is_dir() and not os.access(target.parent, os.W_OK | os.X_OK):
        path = target / LOCK_SUFFIX
    else:
        name = os.fsencode(target.name)
        short = target.name if len(name) <= 200 else sha256(name).hexdigest()
        path = target.with_name(f".{short}{LOCK_SUFFIX}")
    while True:
        descriptor = _open(path, target)
        try:
            is_free = _flock(descriptor)
            # Its owner may have removed the file after we opened it.
            if not is_free or _is_there(path, descriptor):
                owner = _read(descriptor, path)
                if is_free is not False and (owner is None or owner.has_ended(is_free)):
                    return path, descriptor, owner
                message = f"{target} is in use by {owner or 'another process'}: wait until it ends"
                message += ", or name another output"
                if is_free is not False:
                    message += f"; if you know that it has ended, remove {path}"
                raise InUseError(message)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


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


def _clear_leftovers(target: Path, token: str) -> None:
    """Remove what the owner of ``token`` left beside ``target`` and in it, except for parts.

    What it moved away and did not replace gets its name back.
    """
    name_of = re.compile(rf"\.(.*)\.{token}-[0-9]+({re.escape(PARTIAL)}|{re.escape(REPLACED)})")
    found = list(target.parent.iterdir()) if os.access(target.parent, os.R_OK) else []
    for folder, folders, files in os.walk(target):
        found += [Path(folder, name) for name in (*folders, *files)]
    for path in found:
        match = name_of.fullmatch(path.name)
        if match is None:
            continue
        original = path.with_name(match[1])
        if match[2] == REPLACED and not os.path.lexists(original):
            with writing(path, "be removed"):
                path.rename(original)
        else:
            remove_tree(path)
