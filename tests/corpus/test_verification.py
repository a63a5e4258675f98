"""Comparing files with their sha256: the first that differs is named, and progress is told."""

import hashlib
from pathlib import Path

import pytest

from tidybert.corpus.manifest import HashedFile, verify_files
from tidybert.errors import DataError


def test_all_files_are_read_and_the_first_that_differs_is_named(tmp_path: Path) -> None:
    files = []
    for number in range(5):
        path = tmp_path / f"{number}.tokens"
        path.write_bytes(bytes([number]) * 100)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        files.append(HashedFile(path, 100, digest))
    told: list[tuple[int, int]] = []

    verify_files(files, lambda done, total: told.append((done, total)))

    assert told == [(done, 500) for done in (100, 200, 300, 400, 500)]
    for number in (4, 2):
        (tmp_path / f"{number}.tokens").write_bytes(b"other")
    with pytest.raises(DataError, match=r"2\.tokens: its sha256 is .* damaged or was exchanged"):
        verify_files(files)
    (tmp_path / "1.tokens").unlink()
    with pytest.raises(DataError, match=r"1\.tokens: cannot be read: no such file"):
        verify_files(files)
