"""Files and directories that are whole or absent, whatever interrupts the writing.

Each is written under a name that begins with a dot and ends in ``.partial``, synced to the disk and
renamed; then the rename is synced.  A kill may leave a ``.partial``: the next write to the same
target removes it, and so does ``remove_partials``.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_PARTIAL = ".partial"
_REPLACED = ".replaced.partial"


def _aside(target: Path, suffix: str = _PARTIAL) -> Path:
    return target.with_name(f".{target.name}{suffix}")


def _put_back(target: Path) -> None:
    """Undo a replacement that was interrupted between its two renames."""
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
    """Remove the parts that interrupted writes left directly in ``directory``.

    Puts back a directory that was moved away before its successor was in place.
    """
    for path in Path(directory).glob(f".*{_REPLACED}"):
        _put_back(path.with_name(path.name[1 : -len(_REPLACED)]))
    for path in Path(directory).glob(f".*{_PARTIAL}"):
        remove_tree(path)


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


def rename_synced(source: Path, target: Path) -> None:
    """Rename a finished file to ``target``, in the same folder; both are then on the disk."""
    sync(source)
    source.replace(target)
    sync(target.parent)


@contextmanager
def atomic_file(target: str | Path) -> Iterator[Path]:
    """Give a path to write to; when the block ends without error the file becomes ``target``.

    Replaces an existing ``target`` in one step.  After an error ``target`` is unchanged and the
    partial file is removed.  The folder of ``target`` must exist.
    """
    target = Path(target)
    partial = _aside(target)
    remove_tree(partial)
    try:
        yield partial
        rename_synced(partial, target)
    except BaseException:
        remove_tree(partial)
        raise


def atomic_write_bytes(target: str | Path, data: bytes) -> None:
    """Write ``data`` to ``target``, which then holds all of it or, after an error, is unchanged."""
    with atomic_file(target) as partial:
        partial.write_bytes(data)


def atomic_write_text(target: str | Path, text: str) -> None:
    """Write ``text`` like ``atomic_write_bytes``, in UTF-8 and with its line ends unchanged."""
    atomic_write_bytes(target, text.encode("utf-8"))


def atomic_write_json(target: str | Path, content: Any) -> None:
    """Write ``content`` like ``atomic_write_bytes``, as indented JSON in ASCII."""
    # In ASCII: a path that is not UTF-8 is a string that has no UTF-8 either.
    atomic_write_text(target, json.dumps(content, indent=2) + "\n")


@contextmanager
def atomic_directory(target: str | Path) -> Iterator[Path]:
    """Give an empty directory to fill; when the block ends without error it becomes ``target``.

    Makes missing parents.  Replaces an existing ``target`` as a whole: moves the old one away and
    the new one in.  A kill between the two leaves no ``target``, never a mixed one; the next write
    or ``remove_partials`` puts the old one back.  After an error ``target`` is unchanged and the
    partial directory is removed.
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


@contextmanager
def files_together(directory: str | Path, *, first: str, last: str) -> Iterator[Path]:
    """Give an empty directory to fill; its files then move into ``directory``, one by one.

    All are on the disk before one moves.  The file ``first`` moves before the others, so that its
    hashes of them show a kill in between; ``last`` is the one that takes longest to replace.  Other
    files in ``directory`` stay.  An error before the first move leaves ``directory`` unchanged.
    """
    directory = Path(directory)
    partial = directory / f".saving{_PARTIAL}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        remove_tree(partial)
        partial.mkdir()
        yield partial
        sync_tree(partial)
        (partial / first).replace(directory / first)
        # The new hashes must be on the disk before any file that they describe.
        sync(directory)
        for name in sorted(path.name for path in partial.iterdir() if path.name != last):
            (partial / name).replace(directory / name)
        (partial / last).replace(directory / last)
        sync(directory)
    finally:
        remove_tree(partial)


def file_sha256(path: str | Path) -> str:
    """The sha256 of a file's content, in hexadecimal."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
