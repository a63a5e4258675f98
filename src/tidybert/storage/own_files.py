"""The calls that write, sync, rename and remove; every way to write a file is made of these.

A file is opened only under a name of ours and never through a link.  An OSError becomes a
DiskError.
"""

import os
import shutil
from pathlib import Path

from tidybert.storage.disk_errors import writing


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
