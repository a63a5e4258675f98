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

from tidybert.errors import ConfigError, DataError, DiskError, UsageError, param
from tidybert.storage.atomic_files import atomic_write_json
from tidybert.storage.json_objects import read_json_object
from tidybert.storage.output_lock import OutputLock, journal_of, output_lock
from tidybert.storage.own_files import open_own, rename_synced, writing

# A file that grows for hours: what was there at its last sync survives a kill.


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
    advance: Callable[[int], None] = lambda num_items: None,
) -> Written:
    """Write ``target`` piece by piece, whole or not at all; what is done stays for a resume.

    Args:
        settings: what the pieces depend on, by name; a resumed file must have the same.
        items: all of them; those that a stopped run has done are passed over.
        pieces: called with the items that are left, and the number of those that are done.
        resume: go on with what a stopped run left, if anything.
        advance: called with the number of items done.

    Raises as ``new_file``, UsageError for other settings than those of the stopped run, DataError
    for other items and for damage, and DiskError.
    """
    left = iter(items)
    with new_file(target, resume) as lock:
        part = _Part(lock, target, settings, form)
        try:
            num_resumed = part.num_items
            part.skip_done(left)
            advance(num_resumed)
            for piece in pieces(left, num_resumed):
                part.append(*piece)
                advance(part.num_items)
            part.finish(form)
        finally:
            part.close()
    return Written(part.num_items, part.num_cut, num_resumed)


@contextmanager
def new_file(target: Path, resume: bool) -> Iterator[OutputLock]:
    """Within the block this process alone writes ``target``, which is new.

    Raises UsageError if ``target`` exists, or a part of it that ``resume`` does not ask for, and
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
                f"continues it; to start again remove {part}"
            )
        yield lock


def has_part(target: Path) -> bool:
    """Whether a stopped run has left something to resume; in a block of ``new_file``."""
    with output_lock(target) as lock:
        return _resumable(lock, target) is not None


def _resumable(lock: OutputLock, target: Path) -> Path | None:
    part = lock.part_of(target)
    return part if part is not None and journal_of(part).is_file() else None


def _is_done(part: Path) -> bool:
    try:
        return read_json_object(journal_of(part)).get("done") is True
    except ConfigError:
        return False


class _Part:
    """The part of a target and its journal; ``num_items`` are done, ``num_cut`` of them cut."""

    def __init__(
        self, lock: OutputLock, target: Path, settings: Mapping[str, Any], form: Form
    ) -> None:
        self.num_items = self.num_cut = 0
        self._lock, self._target = lock, target
        # JSON turns a tuple into a list: compare with what the journal gives back.
        self._settings = json.loads(json.dumps(settings))
        self._digest = hashlib.sha256()
        self._sha256 = self._digest.hexdigest()
        self._is_done = False
        path = _resumable(lock, target)
        if path is not None:
            self._file = GrowingFile(path, self._read_journal(path), shown=target)
        else:
            self._file = GrowingFile(lock.new_part(target), shown=target)
            self._file.write(form.begin())
        self._saved = time.monotonic()

    def _read_journal(self, path: Path) -> int:
        """Set what is done; return how many bytes are whole."""
        journal = journal_of(path)
        try:
            state = read_json_object(journal)
            progress, settings = dict(state["progress"]), dict(state["settings"])
            self.num_items, self.num_cut = int(progress["texts"]), int(progress.get("truncated", 0))
            self._sha256 = progress.get("sha256", self._sha256)
            size = int(state["bytes"])
        except (ConfigError, KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{journal} is damaged ({error}): remove it and {path} to start again"
            ) from error
        other = [name for name, value in self._settings.items() if settings.get(name) != value]
        if other:
            raise UsageError(
                f"{param('resume')}: {path} was begun with other {', '.join(other)}: give the "
                "same, or remove it to start again"
            )
        return size

    def skip_done(self, items: Iterator[Any]) -> None:
        """Take the items that are done off the front; DataError unless they are the same."""
        self._update(islice(items, self.num_items))
        if self._digest.hexdigest() != self._sha256:
            raise DataError(
                f"{param('resume')}: {self._file.path} was begun with other texts: give the same "
                "file, or remove it to start again"
            )

    def append(self, content: bytes, items: Sequence[Any], num_cut: int) -> None:
        self._file.write(content)
        self._update(items)
        self._sha256 = self._digest.hexdigest()
        self.num_items += len(items)
        self.num_cut += num_cut
        if time.monotonic() - self._saved >= SECONDS_BETWEEN_SAVES:
            self._save()

    def _update(self, items: Iterable[Any]) -> None:
        for item in items:
            self._digest.update(repr(item).encode("utf-8", "surrogatepass"))

    def _save(self, *, is_done: bool = False) -> None:
        done = {"texts": self.num_items, "sha256": self._sha256, "truncated": self.num_cut}
        size = self._file.sync()
        state = {"bytes": size, "progress": done, "settings": self._settings, "done": is_done}
        atomic_write_json(journal_of(self._file.path), state, self._lock)
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
        if self.num_items and not self._is_done:
            # On a full disk the journal before this one is still valid.
            with suppress(OSError, DiskError):
                self._save()
        self._file.close()
        if not self.num_items:
            self._lock.drop_part(self._target)
