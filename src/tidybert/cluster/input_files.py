"""The files of a job: a folder, a pattern or one file, in one order on every machine."""

import os
from collections.abc import Collection
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path

from tidybert.errors import DataError, UsageError
from tidybert.files.wording import count_of


@dataclass(frozen=True, order=True)
class InputFile:
    """A file to read, and what shows that it changed.

    Args:
        name: below the folder of the job, with "/": "2026/part-0.csv".  Its output has this name
            and a suffix more.
        path: absolute, as each worker opens it.
        num_bytes: its size.
        modified: nanoseconds since 1970.
    """

    name: str
    path: str
    num_bytes: int
    modified: int


def input_files(given: str, suffixes: Collection[str]) -> list[InputFile]:
    """The files that ``given`` names, sorted by name.

    Args:
        given: a folder (every file in it and below, without hidden ones), a pattern (``**`` for any
            depth) or a file.
        suffixes: those that a file in a folder may have, before ``.gz``.

    Raises DataError where there is no file, and UsageError for a folder that holds other files too.
    """
    path = Path(given)
    if path.is_dir():
        root, found = path, [each for each in path.rglob("*") if each.is_file()]
        found = [each for each in found if not _is_hidden(each.relative_to(path))]
        odd = sorted(each for each in found if _suffix(each) not in suffixes)
        if odd:
            raise UsageError(
                f"{given}: {count_of(len(odd), 'file')} with an unknown suffix, first {odd[0]}; "
                f"name the files to read, for example '{path / '*.parquet'}'"
            )
    elif has_magic(given):
        # Path.glob takes no pattern that begins at the root.
        found = [Path(each) for each in glob(given, recursive=True)]  # noqa: PTH207
        found = [each for each in found if each.is_file()]
        root = _fixed_part(path)
    else:
        if not path.is_file():
            raise DataError(f"{given}: no such file or folder")
        root, found = path.parent, [path]
    if not found:
        raise DataError(f"{given}: no file {'matches' if has_magic(given) else 'is in the folder'}")
    return sorted(described(each, root) for each in found)


def described(path: Path, root: Path) -> InputFile:
    """A file that has its name below ``root``."""
    status = path.stat()
    name = path.relative_to(root).as_posix()
    return InputFile(name, os.path.abspath(path), status.st_size, status.st_mtime_ns)  # noqa: PTH100


def _fixed_part(pattern: Path) -> Path:
    """The folders of a pattern before the first one with a wildcard."""
    fixed = Path(pattern.anchor)
    for part in pattern.parts[len(fixed.parts) : -1]:
        if has_magic(part):
            break
        fixed /= part
    return fixed


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _suffix(path: Path) -> str:
    return Path(path.name.lower().removesuffix(".gz")).suffix
