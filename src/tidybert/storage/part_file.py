"""A file that takes hours to write: it grows by whole pieces, and a kill costs the last second.

A hidden part beside TARGET holds what is done.  Its journal says how many of its bytes are whole,
of which items, and with which settings they were made.  TARGET's lock has the name of both.  Only a
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
from typing import Any, Final, TypeVar

import msgspec

from tidybert.errors import DataError, DiskError, UsageError, param
from tidybert.storage.journal import Count, Journal, check_settings
from tidybert.storage.output_lock import OutputLock, journal_of, output_lock
from tidybert.storage.own_files import GrowingFile
from tidybert.system.reporter import SILENT, Reporter

SECONDS_BETWEEN_SAVES: Final = 1.0

Item = TypeVar("Item")
Piece = tuple[bytes, Sequence[Item], int]
"""Bytes that belong together, the items that they are about, and how many of these were cut."""


class Form:
    """How pieces become a file."""

    def begin(self) -> bytes:
        """The bytes before the first piece."""
        return b""

    def make(self, file: GrowingFile, target: Path) -> None:
        """Make ``target`` from the file of all pieces."""
        file.become(target)


@dataclass(frozen=True)
class Written:
    """How many items a file holds, how many were cut, and how many a stopped run had done."""

    num_texts: int
    num_truncated: int
    num_resumed: int


def grow_file(
    target: Path,
    settings: Mapping[str, Any],
    items: Iterable[Item],
    pieces: Callable[[Iterator[Item], int], Iterable[Piece[Item]]],
    form: Form,
    *,
    resume: bool = False,
    reporter: Reporter = SILENT,
) -> Written:
    """Write ``target`` piece by piece, whole or not at all; what is done stays for a resume.

    ``pieces`` gets the items that are left, and the number of those done; a resumed file must have
    the same ``settings`` and items.  Raises as ``new_file``, UsageError, DataError and DiskError.
    """
    left = iter(items)
    with new_file(target, resume) as lock:
        part = _Part(lock, target, settings, form)
        try:
            num_resumed = part.done.texts
            part.skip_done(left)
            reporter.advance(num_resumed)
            for piece in pieces(left, num_resumed):
                part.append(*piece)
                reporter.advance(part.done.texts)
            part.finish(form)
        finally:
            part.close()
    return Written(part.done.texts, part.done.truncated, num_resumed)


@contextmanager
def new_file(target: Path, resume: bool) -> Iterator[OutputLock]:
    """Within the block this process alone writes ``target``; UsageError where it or a part is."""
    if not target.parent.is_dir():
        what = "is a file" if target.parent.exists() else "does not exist; make it first"
        raise UsageError(f"{param('out', target)}: the folder {target.parent} {what}")
    with output_lock(target) as lock:
        part = _resumable(lock, target)
        # A kill may have come before the first journal, or after the file got its name.
        if part is None or (os.path.lexists(target) and _lacks_only_its_name(part)):
            lock.drop_part(target)
        if os.path.lexists(target):
            raise UsageError(f"{param('out', target)} is there already; name a new file")
        if part is not None and not resume:
            raise UsageError(
                f"{param('out', target)}: a stopped run has left a part of it; {param('resume')} "
                f"continues it; to start again remove {part}"
            )
        yield lock


def has_part(target: Path) -> bool:
    """Whether a stopped run has left something to resume; in a block of ``new_file``."""
    with output_lock(target) as lock:
        return _resumable(lock, target) is not None


def settings_of_part(target: Path) -> Mapping[str, Any]:
    """The settings of what a stopped run has left; empty where there is nothing to resume."""
    with output_lock(target) as lock:
        part = _resumable(lock, target)
        return {} if part is None else _journal(part).read().settings


def _resumable(lock: OutputLock, target: Path) -> Path | None:
    part = lock.part_of(target)
    return part if part is not None and journal_of(part).is_file() else None


def _lacks_only_its_name(part: Path) -> bool:
    try:
        return _journal(part).read().done
    except DataError:
        return False


class _Done(msgspec.Struct, forbid_unknown_fields=True):
    """How many items a part has, the sha256 of them, and how many of them were cut."""

    texts: Count
    sha256: str = hashlib.sha256().hexdigest()
    truncated: Count = 0


class _PartState(msgspec.Struct, forbid_unknown_fields=True):
    """The journal of a part: of its bytes so many are whole; ``done`` if it lacks only its name."""

    bytes: Count
    progress: _Done
    settings: dict[str, Any]
    done: bool = False


def _journal(part: Path) -> Journal[_PartState]:
    return Journal(journal_of(part), _PartState, f"remove it and {part} to start again")


class _Part:
    """The part of a target and its journal; ``done`` is how far it is."""

    def __init__(
        self, lock: OutputLock, target: Path, settings: Mapping[str, Any], form: Form
    ) -> None:
        self.done = _Done(0)
        self._lock, self._target = lock, target
        # JSON turns a tuple into a list: compare with what the journal gives back.
        self._settings = json.loads(json.dumps(settings))
        self._digest = hashlib.sha256()
        self._is_done = False
        path = _resumable(lock, target)
        if path is not None:
            state = _journal(path).read()
            check_settings(
                state.settings,
                self._settings,
                f"{param('resume')}: {path} was begun",
                "give the same, or remove it to start again",
            )
            self.done = state.progress
            self._file = GrowingFile(path, state.bytes, shown=target)
        else:
            self._file = GrowingFile(lock.new_part(target), shown=target)
            self._file.write(form.begin())
        self._saved = time.monotonic()

    def skip_done(self, items: Iterator[Any]) -> None:
        """Take the items that are done off the front; DataError unless they are the same."""
        self._update(islice(items, self.done.texts))
        if self._digest.hexdigest() != self.done.sha256:
            raise DataError(
                f"{param('resume')}: {self._file.path} was begun with other texts: give the same "
                "file, or remove it to start again"
            )

    def append(self, content: bytes, items: Sequence[Any], num_cut: int) -> None:
        self._file.write(content)
        self._update(items)
        self.done.sha256 = self._digest.hexdigest()
        self.done.texts += len(items)
        self.done.truncated += num_cut
        if time.monotonic() - self._saved >= SECONDS_BETWEEN_SAVES:
            self._save()

    def _update(self, items: Iterable[Any]) -> None:
        for item in items:
            self._digest.update(repr(item).encode("utf-8", "surrogatepass"))

    def _save(self, *, is_done: bool = False) -> None:
        state = _PartState(self._file.sync(), self.done, self._settings, is_done)
        _journal(self._file.path).write(state, self._lock)
        self._saved = time.monotonic()

    def finish(self, form: Form) -> None:
        """Make the target from the part, and remove the rest."""
        if os.path.lexists(self._target):
            raise DiskError(
                f"{self._target} was made by somebody else in the meantime, and is left as it is; "
                f"the finished work is {self._file.path}"
            )
        self._save(is_done=True)
        self._is_done = True
        form.make(self._file, self._target)
        self._lock.drop_part(self._target)

    def close(self) -> None:
        """Keep what is whole, or remove the part if that is nothing."""
        if self.done.texts and not self._is_done:
            # On a full disk the journal before this one is still valid.
            with suppress(OSError, DiskError):
                self._save()
        self._file.close()
        if not self.done.texts:
            self._lock.drop_part(self._target)
