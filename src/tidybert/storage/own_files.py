"""The calls that write, sync, rename and remove; every way to write a file is made of these.

A file is opened only under a name of ours and never through a link.  An OSError becomes a
DiskError.
"""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tidybert.errors import DiskError

# Errors of the disk as messages: which file, what was wanted, what is free, what to do.

_ADVICE: Final = {
    errno.ENOSPC: "make room on the disk, or name another place",
    getattr(errno, "EDQUOT", errno.ENOSPC): "make room in your quota, or name another place",
    errno.EIO: "the disk or its connection fails: look at the system's log",
    errno.EROFS: "the file system is read-only: name another place",
    errno.EACCES: "change the permissions, or name another place",
    errno.EPERM: "change the permissions, or name another place",
    errno.ELOOP: "a link is in its place: remove the link, or name another place",
    errno.ENAMETOOLONG: "give it a shorter name",
}


@contextmanager
def writing(path: str | Path, wanted: str = "be written") -> Iterator[None]:
    """Within the block an OSError becomes a DiskError about ``path``.

    Leaves an OSError about another file, such as one that the block reads, as it is.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None or _is_in(error.filename, Path(path)):
            raise disk_error(error, path, wanted) from error
        raise


def disk_error(error: OSError, path: str | Path, wanted: str = "be written") -> DiskError:
    """The DiskError for an OSError about ``path``, which could not do what was ``wanted``."""
    reason = error.strerror or str(error)
    message = f"{path} cannot {wanted}: {reason}"
    free = free_bytes(path)
    if free is not None:
        message += f"; {amount(free)} are free there"
    advice = _ADVICE.get(error.errno or 0)
    return DiskError(f"{message}; {advice}" if advice else message)


def free_bytes(path: str | Path) -> int | None:
    """The bytes that this user may still write where ``path`` is or will be; None if unknown."""
    try:
        # The nearest directory that exists.
        above = (Path(path).absolute(), *Path(path).absolute().parents)
        return shutil.disk_usage(next(each for each in above if each.is_dir())).free
    except OSError:
        return None


def bytes_below(folder: Path) -> int:
    """The bytes of all files in a folder and in those below it; 0 where it is not there."""
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())


def require_room(folder: str | Path, num_bytes: int, purpose: str) -> None:
    """Raise DiskError, which ``purpose`` begins, unless ``folder``, or a new one, has the room."""
    free = free_bytes(folder)
    if free is not None and free < num_bytes:
        raise DiskError(
            f"{purpose} {amount(num_bytes)} in {folder}, where {amount(free)} are free: make "
            "room, or name another place"
        )


def amount(num_bytes: int) -> str:
    """A number of bytes for a reader: 0 bytes, 12.3 kB, 45.6 MB, 1.2 GB.

    >>> amount(12_345)
    '12.3 kB'
    """
    if num_bytes < 1000:
        return f"{num_bytes} bytes"
    size = float(num_bytes)
    for unit in ("kB", "MB", "GB"):
        size /= 1000
        if size < 1000 or unit == "GB":
            break
    return f"{size:,.1f} {unit}"


def _is_in(filename: object, path: Path) -> bool:
    """Whether an error's file is ``path``, in it, or a hidden file beside it, as ours are."""
    if not isinstance(filename, str | bytes):
        return False
    found, wanted = Path(os.fsdecode(filename)).absolute(), path.absolute()
    return found.is_relative_to(wanted) or (
        found.parent == wanted.parent and found.name.startswith(".")
    )


def open_own(path: str | Path, flags: int) -> int:
    """A descriptor of a file to write, made if ``flags`` has O_CREAT; follows no link."""
    for name in ("O_NOFOLLOW", "O_CLOEXEC", "O_BINARY"):
        flags |= getattr(os, name, 0)
    return os.open(path, flags, 0o666)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of ``data``: a disk that becomes full takes a part first, and then fails."""
    done = 0
    while done < len(data):
        done += os.write(descriptor, data[done:])


def make_directory(path: str | Path) -> None:
    """Make a directory and its missing parents, unless it is there."""
    with writing(path, "be made"):
        Path(path).mkdir(parents=True, exist_ok=True)


def remove_tree(path: str | Path) -> None:
    """Remove a file, a link or a directory tree, if it is there."""
    path = Path(path)
    with writing(path, "be removed"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Wait until the file or directory ``path`` itself is on the disk."""
    # Windows cannot open a directory, and syncs its entries by itself.
    if os.name != "posix" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(directory: Path) -> None:
    """Wait until every file and directory under ``directory``, and itself, is on the disk."""
    for root, _, names in os.walk(directory):
        for name in names:
            sync(Path(root, name))
        sync(Path(root))


def rename_synced(source: Path, target: Path) -> None:
    """Rename a finished file to ``target``, in the same folder; both are then on the disk."""
    with writing(target):
        sync(source)
        source.replace(target)
        sync(target.parent)


def move_files(source: Path, directory: Path, *, first: str = "", last: str) -> None:
    """Move all files and folders of ``source`` into ``directory`` in the places of those of their
    names, and remove ``source``.

    ``first`` is on the disk before the others move, and these before ``last``.  A second call goes
    on where a kill ended the first one.
    """
    with writing(directory):
        others = sorted({path.name for path in source.iterdir()} - {first, last})
        for names in ([first], others, [last]):
            for name in names:
                if name and os.path.lexists(source / name):
                    if (source / name).is_dir():
                        remove_tree(directory / name)
                    (source / name).replace(directory / name)
            sync(directory)
        source.rmdir()


class GrowingFile:
    """A file that is written at its end; what was there at its last sync survives a kill.

    Args:
        path: is new if ``size`` is None.  Otherwise it was being written, and is cut to ``size``.
        shown: the name in messages about writing, if it is another.

    Raises DiskError for a file that is not new, or shorter than ``size``, and for a link.
    """

    def __init__(self, path: Path, size: int | None = None, shown: Path | None = None) -> None:
        self.path, self.size, self._shown = path, size or 0, shown or path
        with writing(path):
            new = os.O_CREAT | os.O_EXCL if size is None else 0
            self._file = os.fdopen(open_own(path, os.O_RDWR | new), "r+b")
            found = os.fstat(self._file.fileno()).st_size
            if found < self.size:
                self.close()
                raise DiskError(
                    f"{path} has lost bytes: {self.size} were written, {found} are there"
                )
            self._file.truncate(self.size)
            self._file.seek(self.size)

    def write(self, content: bytes) -> None:
        """Write at the end; after an error ``size`` bytes are still whole."""
        with writing(self._shown):
            self._file.write(content)
        self.size += len(content)

    def replace_head(self, content: bytes) -> None:
        with writing(self._shown):
            self._file.seek(0)
            self._file.write(content)
            self._file.seek(self.size)

    def sync(self) -> int:
        """Wait until all is on the disk; returns how many bytes."""
        with writing(self._shown):
            self._file.flush()
            os.fsync(self._file.fileno())
        return self.size

    def become(self, target: Path) -> None:
        """End the file, and rename it to ``target`` in the same folder."""
        self.sync()
        self.close()
        rename_synced(self.path, target)

    def close(self) -> None:
        """End the writing.  What did not fit on the disk is lost; ``write`` or ``sync`` said so."""
        with suppress(OSError):
            self._file.close()
