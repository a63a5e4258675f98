"""A file that grows for hours: what was there at its last sync survives a kill."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Self

from tidybert.errors import DiskError
from tidybert.storage.disk_errors import writing
from tidybert.storage.own_files import open_own, rename_synced


class GrowingFile:
    """A file that is written at its end.

    Args:
        path: must be new, or have ``size`` bytes at least: a file that was being written, which is
            cut to them.  DiskError for any other, and for a link.
        shown: the name in messages about writing, if it is another.
    """

    def __init__(self, path: Path, size: int | None = None, shown: Path | None = None) -> None:
        self.path, self.size, self._shown = path, size or 0, shown or path
        with writing(path):
            new = os.O_CREAT | os.O_EXCL if size is None else 0
            self._file = os.fdopen(open_own(path, os.O_RDWR | new), "r+b")
            try:
                found = os.fstat(self._file.fileno()).st_size
                if found < self.size:
                    raise DiskError(
                        f"{path} has lost bytes: {self.size} were written, {found} are there"
                    )
                self._file.truncate(self.size)
                self._file.seek(self.size)
            except BaseException:
                self._file.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, content: bytes) -> None:
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
        # What did not fit on the disk is still in the buffer; ``write`` or ``sync`` said so.
        with suppress(OSError):
            self._file.close()
