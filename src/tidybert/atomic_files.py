"""Files and directories that are either whole or not there, whatever interrupts the writing.

Everything is written aside under a name that starts with a dot and ends in ``.partial``, synced to
the disk, renamed, and the rename synced.  What a kill leaves of the name ``.partial`` is cleared by
the next write to the same target, or by ``remove_partials``.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PARTIAL = ".partial"
_REPLACED = ".replaced.partial"


def _aside(target: Path, suffix: str = _PARTIAL) -> Path:
    return target.with_name(f".{target.name}{suffix}")


def _put_back(target: Path) -> None:
    """Undo the first half of a replacement whose second half did not come."""
    replaced = _aside(target, _REPLACED)
    if replaced.exists() and not target.exists():
        replaced.rename(target)


def remove_tree(path: Path) -> None:
    """Remove a file, a link or a directory tree, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def remove_partials(directory: str | Path) -> None:
    """Remove what interrupted writes left directly in ``directory``.

    A directory that was moved away for its successor, which then did not come, is put back.
    """
    for path in Path(directory).glob(f".*{_REPLACED}"):
        _put_back(path.with_name(path.name[1 : -len(_REPLACED)]))
    for path in Path(directory).glob(f".*{_PARTIAL}"):
        remove_tree(path)


def sync(path: str | Path) -> None:
    """Wait until the file or directory ``path`` itself is on the disk."""
    # Windows cannot open a directory, and syncs its entries without being asked.
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


@contextmanager
def atomic_file(target: str | Path) -> Iterator[Path]:
    """Give a path to write to; when the block ends without error the file becomes ``target``.

    An existing ``target`` is replaced in one step.  After an error it is as it was, and the partial
    file is removed.  The folder of ``target`` must exist.
    """
    target = Path(target)
    partial = _aside(target)
    remove_tree(partial)
    try:
        yield partial
        sync(partial)
        partial.replace(target)
        sync(target.parent)
    except BaseException:
        remove_tree(partial)
        raise


def atomic_write_bytes(target: str | Path, data: bytes) -> None:
    """Write ``data`` to ``target``, which afterwards holds all of it or is as it was."""
    with atomic_file(target) as partial:
        partial.write_bytes(data)


def atomic_write_text(target: str | Path, text: str) -> None:
    """Write ``text`` in UTF-8, its line ends unchanged, as ``atomic_write_bytes`` does."""
    atomic_write_bytes(target, text.encode("utf-8"))


@contextmanager
def atomic_directory(target: str | Path) -> Iterator[Path]:
    """Give an empty directory to fill; when the block ends without error it becomes ``target``.

    Missing parents are made.  An existing ``target`` is replaced as a whole: it is moved away and
    the new one moved in.  A kill between the two leaves no ``target``, never a mixed one, and the
    next write or ``remove_partials`` puts the old one back.  After an error ``target`` is as it
    was, and the partial directory is removed.
    """
    target = Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial, replaced = _aside(target), _aside(target, _REPLACED)
    _put_back(target)
    remove_tree(partial)
    remove_tree(replaced)
    partial.mkdir()
    try:
        yield partial
        sync_tree(partial)
        if target.exists():
            target.rename(replaced)
        partial.rename(target)
        sync(target.parent)
    except BaseException:
        _put_back(target)
        remove_tree(partial)
        raise
    remove_tree(replaced)


def file_sha256(path: str | Path) -> str:
    """The sha256 of a file's content, in hexadecimal."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
