"""Errors of the disk as messages: which file, what was wanted, what is free, what to do."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tidybert.errors import DiskError

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
        return shutil.disk_usage(nearest_folder(path)).free
    except OSError:
        return None


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


def nearest_folder(path: str | Path) -> Path:
    """``path`` itself if it is a directory, or the nearest directory above it that exists."""
    path = Path(path).absolute()
    return next(each for each in (path, *path.parents) if each.is_dir())


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
