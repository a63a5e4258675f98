"""A file that grows for hours: what was there at its last sync survives a kill."""

import os
from contextlib import suppress
from pathlib import Path

from tidybert.errors import DiskError
from tidybert.storage.disk_errors import writing
from tidybert.storage.own_files import open_own, rename_synced


class GrowingFile:
    """A file that is written at its end.

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
        """Write over the first bytes."""
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
