"""Comparing the files of a corpus with the sha256 that corpus.json has of them."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidybert.errors import DataError
from tidybert.storage.atomic_files import file_sha256
from tidybert.storage.opening import os_reason

# Hashing works outside Python's lock.  Two threads keep a disk busy while one of them computes.
_THREADS: Final = 2


@dataclass(frozen=True)
class HashedFile:
    """A file with its bytes and its sha256 in hexadecimal, as they should be."""

    path: Path
    num_bytes: int
    sha256: str


def verify_files(
    files: Sequence[HashedFile], progress: Callable[[int, int], None] = lambda _done, _total: None
) -> None:
    """Read every file and compare its sha256.

    progress: called after each file with the bytes read so far and those of all files.

    Raises DataError for the first file in order that differs or cannot be read.
    """
    total, done = sum(file.num_bytes for file in files), 0
    with ThreadPoolExecutor(_THREADS) as pool:
        checks = [pool.submit(check_sha256, file.path, file.sha256) for file in files]
        try:
            for file, check in zip(files, checks, strict=True):
                check.result()
                done += file.num_bytes
                progress(done, total)
        finally:
            pool.shutdown(cancel_futures=True)


def check_sha256(path: Path, digest: str) -> None:
    """Raise DataError for a file of other content, or that cannot be read."""
    try:
        found = file_sha256(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {os_reason(error, path)}") from error
    if found != digest:
        raise DataError(
            f"{path}: its sha256 is {found[:12]}…, and corpus.json says {digest[:12]}…; it is "
            "damaged or was exchanged: copy the corpus again"
        )
