"""The sources of a corpus: files of this machine or of another, and standard input.

A source remembers its state when it was found, so that a change while it is read is noticed.
Standard input is first written to a temporary file: so its content is known before the first
document, as that of any file, and a build goes on when the same text is given again.
"""

import hashlib
import io
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, Final

from tidybert.errors import DataError
from tidybert.storage.atomic_files import file_sha256
from tidybert.storage.growing_file import GrowingFile
from tidybert.storage.opening import open_regular, os_reason
from tidybert.storage.remote_files import RemoteFile

STANDARD_INPUT: Final = "-"
_PART_BYTES: Final = 1 << 22


@dataclass(frozen=True)
class Source:
    """A file: its name, as given or found, where it is, and what it was when it was found.

    ``kept``: what goes when the source goes.
    """

    name: str
    place: Path | RemoteFile
    num_bytes: int
    state: Any = field(repr=False)
    kept: Any = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return "standard input" if self.name == STANDARD_INPUT else self.name

    def __fspath__(self) -> str:
        return self.name

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of the name, by which sources are sorted."""
        return PurePath(self.name).parts

    def open(self) -> io.BufferedReader:
        """Its bytes.  Raises DataError."""
        if isinstance(self.place, RemoteFile):
            return self.place.open()
        return open_regular(self.place)

    def content_hash(self) -> str:
        """A hash of the content: of a store's own where it has one, else the sha256."""
        if not isinstance(self.place, RemoteFile):
            return file_sha256(self.place)
        if self.place.content is not None:
            return self.place.content
        with self.open() as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def check_unchanged(self) -> None:
        """Raise DataError if the source is not as it was when it was found."""
        if isinstance(self.place, RemoteFile):
            now = self.place.again()
        else:
            now = source_of(self.place).state
        if now != self.state:
            raise DataError(
                f"{self} changed while it was read; wait until it is complete, and build the "
                "corpus in a new directory"
            )


def source_of(file: Path | RemoteFile) -> Source:
    """A file as a source."""
    if isinstance(file, RemoteFile):
        return Source(file.url, file, file.num_bytes, file)
    found = file.stat()
    return Source(str(file), file, found.st_size, (found.st_size, found.st_mtime_ns))


def _next_part(stream: BinaryIO) -> bytes:
    try:
        return stream.read(_PART_BYTES)
    except OSError as error:
        raise DataError(f"standard input: cannot be read: {os_reason(error)}") from error


def spooled(stream: BinaryIO) -> Source:
    """Standard input as a source, copied to a temporary file.  Raises DataError and DiskError."""
    folder = TemporaryDirectory(prefix="tidybert-input-")
    path = Path(folder.name) / "input"
    file = GrowingFile(path)
    try:
        while part := _next_part(stream):
            file.write(part)
        file.sync()
    except BaseException:
        folder.cleanup()
        raise
    finally:
        file.close()
    found = source_of(path)
    return Source(STANDARD_INPUT, path, found.num_bytes, found.state, folder)
