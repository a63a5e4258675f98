"""A file that takes hours to write: it grows by whole parts, and a kill costs the last second.

A hidden file beside TARGET holds the parts.  Its journal says how many bytes of it are whole, of
which texts, and with which settings they were made.  TARGET's lock has the name of both.  Only a
finished file has the name TARGET.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final

from tidybert.errors import ConfigError, DataError, DiskError, UsageError, param
from tidybert.storage.atomic_files import atomic_write_json, check_absent, open_grown, open_new
from tidybert.storage.disk_errors import writing
from tidybert.storage.json_objects import read_json_object
from tidybert.storage.output_lock import OutputLock, journal_of, output_lock

SECONDS_BETWEEN_SAVES: Final = 1.0


@dataclass(frozen=True)
class Written:
    """How many texts a file holds, how many were cut, and how many a stopped run had done."""

    num_texts: int
    num_truncated: int
    num_resumed: int


@contextmanager
def new_file(target: Path, resume: bool) -> Iterator[OutputLock]:
    """Within the block this process alone writes TARGET, which is new.

    Raises UsageError if TARGET exists, or a part of it that ``resume`` does not ask for, and
    InUseError where another process writes it.
    """
    if not target.parent.is_dir():
        what = "is a file" if target.parent.exists() else "does not exist; make it first"
        raise UsageError(f"{param('out', target)}: the folder {target.parent} {what}")
    with output_lock(target) as lock:
        part = _resumable(lock, target)
        # A kill may have come before the first journal, or after the file got its name.
        if part is None or (os.path.lexists(target) and _is_done(part)):
            lock.drop_part(target)
        if os.path.lexists(target):
            raise UsageError(f"{param('out', target)} is there already; name a new file")
        if part is not None and not resume:
            raise UsageError(
                f"{param('out', target)}: a stopped run has left a part of it; {param('resume')} "
                f"goes on with it; to start again remove {part}"
            )
        yield lock


def has_part(target: Path) -> bool:
    """Whether a stopped run has left something to resume; in a block of ``new_file``."""
    with output_lock(target) as lock:
        return _resumable(lock, target) is not None


@contextmanager
def part_file(
    target: Path, settings: Mapping[str, Any], head: bytes, *, resume: bool
) -> Iterator["PartFile"]:
    """TARGET while it is written; whatever ends the block, its whole parts stay for a resume.

    Raises as ``new_file``, UsageError for other settings than those of the stopped run, DataError
    for damaged parts, and DiskError.

    Args:
        target: the file's name once it is finished.
        settings: what the parts depend on, by name; a resumed file must have the same.
        head: the bytes before the first part.
        resume: go on with what a stopped run left, if anything.
    """
    with new_file(target, resume) as lock:
        # JSON turns a tuple into a list: compare with what the journal gives back.
        part = PartFile(lock, target, json.loads(json.dumps(settings)), head)
        try:
            yield part
        finally:
            part.close()


class PartFile:
    """Made by ``part_file``.

    ``progress`` has "texts", how many texts are done, and the counts given to ``append``.
    """

    def __init__(
        self, lock: OutputLock, target: Path, settings: Mapping[str, Any], head: bytes
    ) -> None:
        self.target = target
        self.progress: dict[str, Any] = {"texts": 0}
        self._lock, self._settings = lock, settings
        self._digest = hashlib.sha256()
        part = _resumable(lock, target)
        if part is not None:
            self.part = part
            self._size = self._read_journal()
            self._file: BinaryIO = open_grown(part, self._size)
        else:
            self.part = lock.new_part(target)
            self._file = open_new(self.part)
            self._size = 0
            self._write(head)
        self._saved = time.monotonic()

    def skip_done(self, texts: Iterator[Any]) -> None:
        """Take the texts that are done off the front.

        Raises DataError unless they are those of the stopped run.
        """
        self._update(islice(texts, self.progress["texts"]))
        if self.progress["texts"] and self._digest.hexdigest() != self.progress["sha256"]:
            raise DataError(
                f"{param('resume')}: {self.part} was begun with other texts: give the same file, "
                "or remove it to start again"
            )

    def append(self, content: bytes, texts: Sequence[Any], **counts: int) -> None:
        """Write one whole part, about the next ``texts``; the ``counts`` so far go with it."""
        self._write(content)
        self._update(texts)
        done = self.progress["texts"] + len(texts)
        self.progress = {"texts": done, "sha256": self._digest.hexdigest(), **counts}
        if time.monotonic() - self._saved >= SECONDS_BETWEEN_SAVES:
            self._save()

    def finish(self, make: Callable[[Path, Path], None]) -> None:
        """Call ``make(part, target)``, which makes the target from the parts; remove the rest."""
        check_absent(self.target, self.part)
        self._save(is_done=True)
        self._file.close()
        make(self.part, self.target)
        self._lock.drop_part(self.target)

    def close(self) -> None:
        """Keep what is whole, or remove the part if that is nothing."""
        if not self._file.closed:
            # On a full disk the journal before this one is still valid.
            with suppress(OSError, DiskError):
                self._save()
            with suppress(OSError):
                self._file.close()
        if not self.progress["texts"]:
            self._lock.drop_part(self.target)

    def _write(self, content: bytes) -> None:
        with writing(self.target):
            self._file.write(content)
        self._size += len(content)

    def _update(self, texts: Iterable[Any]) -> None:
        for one in texts:
            self._digest.update(repr(one).encode("utf-8", "surrogatepass"))

    def _save(self, *, is_done: bool = False) -> None:
        if not (self.progress["texts"] or is_done):
            return
        with writing(self.target):
            self._file.flush()
            os.fsync(self._file.fileno())
        state = {
            "bytes": self._size,
            "progress": self.progress,
            "settings": self._settings,
            "done": is_done,
        }
        atomic_write_json(journal_of(self.part), state)
        self._saved = time.monotonic()

    def _read_journal(self) -> int:
        """Set ``progress``; return how many bytes are whole."""
        journal = journal_of(self.part)
        try:
            state = read_json_object(journal)
            size, settings = int(state["bytes"]), dict(state["settings"])
            self.progress = dict(state["progress"])
            int(self.progress["texts"])
        except (ConfigError, KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{journal} is damaged ({error}): remove it and {self.part} to start again"
            ) from error
        other = [name for name, value in self._settings.items() if settings.get(name) != value]
        if other:
            raise UsageError(
                f"{param('resume')}: {self.part} was begun with other {', '.join(other)}: give the "
                "same, or remove it to start again"
            )
        return size


def _resumable(lock: OutputLock, target: Path) -> Path | None:
    part = lock.part_of(target)
    return part if part is not None and journal_of(part).is_file() else None


def _is_done(part: Path) -> bool:
    try:
        return read_json_object(journal_of(part)).get("done") is True
    except ConfigError:
        return False
