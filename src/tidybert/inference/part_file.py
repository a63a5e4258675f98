"""A file that takes hours to write: it grows by whole parts, and a kill costs the last second.

TARGET.part holds the parts.  TARGET.part.json says how many bytes are whole, and with which
settings they were made.  Only a finished file has the name TARGET.
"""

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final, Self

from tidybert.atomic_files import atomic_write_json
from tidybert.errors import ConfigError, DataError, UsageError, param
from tidybert.json_objects import read_json_object

SECONDS_BETWEEN_SAVES: Final = 1.0


def check_target(target: Path, resume: bool) -> None:
    """Raise UsageError if TARGET exists, or a part of it that ``resume`` does not ask for."""
    if target.exists():
        raise UsageError(f"{param('out', target)} is there already; name a new file")
    if not target.parent.is_dir():
        raise UsageError(
            f"{param('out', target)}: the folder {target.parent} does not exist; make it first"
        )
    if not resume and has_part(target):
        raise UsageError(
            f"{param('out', target)}: a stopped run has left {_part_of(target)}; "
            f"{param('resume')} goes on with it; to start again remove it and {_journal_of(target)}"
        )


def has_part(target: Path) -> bool:
    """Whether a stopped run has left something to resume."""
    return _part_of(target).exists() and _journal_of(target).exists()


class PartFile:
    """TARGET while it is written; a context manager that keeps the parts for a resume.

    ``progress`` is the argument of the ``append`` of the last whole part, empty at the beginning.
    Raises UsageError for other settings, and DataError for damaged parts.

    Args:
        target: the file's name once it is finished.
        settings: what the parts depend on, by name; a resumed file must have the same.
        head: the bytes before the first part.
        resume: go on with what a stopped run left, if anything.
    """

    def __init__(
        self, target: Path, settings: Mapping[str, Any], head: bytes, *, resume: bool
    ) -> None:
        self.target, self.part = target, _part_of(target)
        self.progress: Mapping[str, Any] = {}
        # JSON turns a tuple into a list: compare with what the journal gives back.
        self._settings = json.loads(json.dumps(settings))
        self._journal = _journal_of(target)
        if resume and has_part(target):
            self._size = self._read_journal()
            self._file: IO[bytes] = self.part.open("r+b")
            self._file.truncate(self._size)
            self._file.seek(self._size)
        else:
            self._journal.unlink(missing_ok=True)
            self._file = self.part.open("wb")
            self._file.write(head)
            self._size = len(head)
        self._saved = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._file.closed:
            # On a full disk the journal before this one is still valid.
            with suppress(OSError):
                self._save()
            with suppress(OSError):
                self._file.close()
        if not self.progress:
            self.part.unlink(missing_ok=True)
            self._journal.unlink(missing_ok=True)

    def append(self, content: bytes, progress: Mapping[str, Any]) -> None:
        """Write one whole part; ``progress``, fit for JSON, says where the work is after it."""
        self._file.write(content)
        self._size += len(content)
        self.progress = progress
        if time.monotonic() - self._saved >= SECONDS_BETWEEN_SAVES:
            self._save()

    def finish(self, make: Callable[[Path, Path], None]) -> None:
        """Call ``make(part, target)``, which makes the target from the parts; remove the rest."""
        self._save()
        self._file.close()
        make(self.part, self.target)
        self.part.unlink(missing_ok=True)
        self._journal.unlink()

    def _save(self) -> None:
        if not self.progress:
            return
        self._file.flush()
        os.fsync(self._file.fileno())
        state = {"bytes": self._size, "progress": self.progress, "settings": self._settings}
        atomic_write_json(self._journal, state)
        self._saved = time.monotonic()

    def _read_journal(self) -> int:
        """Set ``progress``; return how many bytes are whole."""
        try:
            state = read_json_object(self._journal)
            size, self.progress, settings = state["bytes"], state["progress"], state["settings"]
        except (ConfigError, KeyError) as error:
            raise DataError(
                f"{self._journal} is damaged ({error}): remove it and {self.part} to start again"
            ) from error
        other = [name for name, value in self._settings.items() if settings.get(name) != value]
        if other:
            raise UsageError(
                f"{param('resume')}: {self.part} was begun with other {', '.join(other)}: give the "
                "same, or remove it to start again"
            )
        if self.part.stat().st_size < size:
            raise DataError(
                f"{self.part} has lost bytes, {size} were written: remove it to start again"
            )
        return int(size)


def _part_of(target: Path) -> Path:
    return target.with_name(f"{target.name}.part")


def _journal_of(target: Path) -> Path:
    return target.with_name(f"{target.name}.part.json")
