"""Open a file that others may have written: a regular file, of a limited size, or a clear error.

A named pipe would wait for ever and a device never ends, so neither is opened.  A link that leads
nowhere is an error: a file that counts as absent would silently change how a model works.
"""

import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import Final

from tidybert.errors import DataError, TidyBertError
from tidybert.storage.limits import LONGEST_NAME, Limit

Failure = type[TidyBertError]
"""The class of the error to raise."""

_KINDS: Final = (
    (stat.S_ISDIR, "it is a folder; name a file in it"),
    (stat.S_ISFIFO, "it is a named pipe; a regular file is expected"),
    (stat.S_ISCHR, "it is a device; a regular file is expected"),
    (stat.S_ISBLK, "it is a device; a regular file is expected"),
    (lambda _mode: True, "it is not a regular file"),
)


def is_plain_name(name: object, folders: int = 0) -> bool:
    """Whether text from outside names a file in a folder, or below at most ``folders`` more.

    Every name that a file, a hub or an index gives passes here before it becomes part of a path.
    """
    parts = name.split("/") if isinstance(name, str) else [""]
    return len(parts) <= folders + 1 and all(
        part not in ("", ".", "..")
        and "\\" not in part
        and "\0" not in part
        and len(part.encode("utf-8", "surrogatepass")) <= LONGEST_NAME
        for part in parts
    )


def leads_outside(path: str | Path, folder: str | Path) -> bool:
    """Whether a name in a folder that the user named is a link to something outside of it."""
    return Path(path).is_symlink() and not Path(os.path.realpath(path)).is_relative_to(
        os.path.realpath(folder)
    )


def open_regular(
    path: str | Path, *, error: Failure = DataError, allow_pipe: bool = False
) -> BufferedReader:
    """Open a regular file, or a pipe where allowed, to read bytes; never waits to open one."""
    flags = os.O_RDONLY
    try:
        # Ask before opening: opening a device can have effects, opening a pipe waits.
        is_pipe = _is_pipe(Path(path).stat(), path, error, allow_pipe)
        # Something else may have the name by now: never wait for a pipe that came in between.
        for name in ("O_CLOEXEC", "O_BINARY", *(() if is_pipe else ("O_NONBLOCK",))):
            flags |= getattr(os, name, 0)
        descriptor = os.open(path, flags)
        try:
            _is_pipe(os.fstat(descriptor), path, error, allow_pipe)
            return os.fdopen(descriptor, "rb")
        except BaseException:
            os.close(descriptor)
            raise
    except TidyBertError:
        raise
    except (OSError, ValueError) as failure:
        raise error(f"{path}: cannot be read: {os_reason(failure, path)}") from None


def present(path: str | Path, *, error: Failure = DataError) -> bool:
    """Whether ``path`` can be opened; False only where nothing, not even a link, has that name."""
    try:
        Path(path).stat()
    except (FileNotFoundError, NotADirectoryError) as failure:
        if os.path.lexists(path):
            raise error(f"{path}: cannot be read: {os_reason(failure, path)}") from None
        return False
    except (OSError, ValueError) as failure:
        raise error(f"{path}: cannot be read: {os_reason(failure, path)}") from None
    return True


def read_bytes(path: str | Path, limit: Limit, *, error: Failure = DataError) -> bytes:
    """All bytes of a regular file; raises ``error`` as ``open_regular``, and LimitError."""
    with open_regular(path, error=error) as file:
        limit.check(os.fstat(file.fileno()).st_size, path)
        try:
            content = file.read(limit.value + 1)
        except OSError as failure:
            raise error(f"{path}: cannot be read: {os_reason(failure, path)}") from None
        except MemoryError:
            raise error(f"{path}: too little memory to read it") from None
    # A file may grow while it is read.
    limit.check(len(content), path)
    return content


def read_text(path: str | Path, limit: Limit, *, error: Failure = DataError) -> str:
    """All text of a regular file in UTF-8, without a byte-order mark; ``error`` names the line."""
    content = read_bytes(path, limit, error=error)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        line = content.count(b"\n", 0, failure.start) + 1
        raise error(f"{path}:{line}: not UTF-8 ({failure.reason})") from None


def os_reason(error: Exception, path: str | Path | None = None) -> str:
    """Why a file cannot be opened or read, in plain words; ``path`` tells a link from nothing."""
    if isinstance(error, FileNotFoundError):
        if path is not None and Path(path).is_symlink():
            return f"it is a link to {Path(path).readlink()}, where there is nothing"
        return "no such file"
    if isinstance(error, IsADirectoryError):
        return "it is a folder; name a file in it"
    return str(getattr(error, "strerror", None) or error)


def _is_pipe(found: os.stat_result, path: str | Path, error: Failure, allow_pipe: bool) -> bool:
    """Whether a file is a pipe that may be read; raises ``error`` if it is not a regular one."""
    if stat.S_ISREG(found.st_mode):
        return False
    if allow_pipe and stat.S_ISFIFO(found.st_mode):
        return True
    kind = next(said for is_kind, said in _KINDS if is_kind(found.st_mode))
    raise error(f"{path}: cannot be read: {kind}")
