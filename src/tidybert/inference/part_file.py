"""A file that is written for hours: it grows by whole parts, and a kill costs the last second.

TARGET.part holds the parts, TARGET.part.json says how far they are whole and what they are of.
Only a finished file bears the name TARGET.
"""

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

from tidybert.atomic_files import atomic_write_json
from tidybert.errors import ConfigError, DataError, UsageError, param
from tidybert.json_objects import read_json_object

SECONDS_BETWEEN_SAVES: Final = 1.0


def check_target(target: Path, resume: bool) -> None:
    """Raise UsageError where TARGET is there, or a part of it that nobody asked to go on with."""
    if target.exists():
        raise UsageError(f"{param('out', target)} is there already; name a new file")
    if not target.parent.is_dir():
        raise UsageError(
            f"{param('out', target)}: there is no folder {target.parent}; make it first"
        )
    if not resume and has_part(target):
        raise UsageError(
            f"{param('out', target)}: a run that was stopped has left {_part_of(target)}; "
            f"{param('resume')} goes on with it; to begin anew remove it and {_journal_of(target)}"
        )


def has_part(target: Path) -> bool:
    """Whether a run that was stopped has left something to go on with."""
    return _part_of(target).exists() and _journal_of(target).exists()


class PartFile:
    """TARGET while it is written; a context manager, after which the parts stay for a resume.

    Args:
        target: the file's name once it is finished.
        settings: by name what the parts depend on; those of a resumed file must be equal.
        head: the bytes before the first part.
        resume: go on with what is there, if anything is.

    ``progress`` is what was given to ``append`` with the last whole part, empty at the beginning.
    Raises UsageError for other settings and DataError for parts that are damaged.
    """

    def __init__(
        self, target: Path, settings: Mapping[str, Any], head: bytes, *, resume: bool
    ) -> None:
        self.target, self.part = target, _part_of(target)
        self.progress: Mapping[str, Any] = {}
        # As the journal gives them back: a tuple is a list there.
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._file.closed:
            # On a full disk the journal before this one still holds.
            with suppress(OSError):
                self._save()
            with suppress(OSError):
                self._file.close()
        if not self.progress:
            self.part.unlink(missing_ok=True)
            self._journal.unlink(missing_ok=True)

    def append(self, content: bytes, progress: Mapping[str, Any]) -> None:
        """Write one whole part; ``progress``, as JSON holds it, is where the work is after it."""
        self._file.write(content)
        self._size += len(content)
        self.progress = progress
        if time.monotonic() - self._saved >= SECONDS_BETWEEN_SAVES:
            self._save()

    def finish(self, make: Callable[[Path, Path], None]) -> None:
        """Call ``make(part, target)``, which makes the target of the parts, and remove the rest."""
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
        """Set ``progress`` and return how many bytes are whole."""
        try:
            state = read_json_object(self._journal)
            size, self.progress, settings = state["bytes"], state["progress"], state["settings"]
        except (ConfigError, KeyError) as error:
            raise DataError(
                f"{self._journal} is damaged ({error}): remove it and {self.part} to begin anew"
            ) from error
        other = [name for name, value in self._settings.items() if settings.get(name) != value]
        if other:
            raise UsageError(
                f"{param('resume')}: {self.part} was begun with other {', '.join(other)}: go on "
                "with the same, or remove it to begin anew"
            )
        if self.part.stat().st_size < size:
            raise DataError(
                f"{self.part} has lost bytes, {size} were written: remove it to begin anew"
            )
        return int(size)


def _part_of(target: Path) -> Path:
    return target.with_name(f"{target.name}.part")


def _journal_of(target: Path) -> Path:
    return target.with_name(f"{target.name}.part.json")
