"""What is done of an output that takes hours, so that a stopped run can go on.

A journal is a file of JSON in the output or beside it.  It holds the settings that the output
depends on, how far it is, and a checksum.  ``Journal`` is replaced as a whole: a kill leaves the
one before or the new one.  ``Log`` has the settings in its first line and grows by a line for each
thing that is done; a line that a kill has cut is no line.

A run reads its journal, compares the settings (``check_settings``) and goes on from there.  A
record is a msgspec.Struct, so that damage and another version are found by its types.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec

from tidybert.errors import DataError, UsageError, param
from tidybert.storage.atomic_files import append_text, atomic_write_json, atomic_write_text
from tidybert.storage.json_objects import (
    decoded,
    json_checksum,
    plain_json,
    read_json_lines,
    read_json_object,
)
from tidybert.storage.limits import JSON_BYTES, Limit
from tidybert.storage.opening import Failure
from tidybert.storage.output_lock import OutputLock, contents
from tidybert.storage.own_files import make_directory

Record = TypeVar("Record", bound=msgspec.Struct)
Count = Annotated[int, msgspec.Meta(ge=0)]


@dataclass(frozen=True)
class Journal(Generic[Record]):
    """A file that is replaced when more is done.

    ``way_out`` says what to do if it is damaged: "remove DIR and build the corpus again".  A file
    without a checksum is read too.
    """

    path: Path
    kind: type[Record]
    way_out: str = ""
    error: Failure = DataError
    limit: Limit = JSON_BYTES
    has_checksum: bool = True

    def read(self) -> Record:
        """What was written last; raises ``error`` for a damaged file, and LimitError."""
        return self.decoded(self.content())

    def content(self) -> dict[str, Any]:
        """What was written last, before its types are checked; raises as ``read``."""
        with _damage(self.path, self.way_out, self.error) as where:
            content = read_json_object(self.path, self.limit, error=self.error, where=where)
            checksum = content.pop("checksum", None)
            if checksum is not None and checksum != json_checksum(content):
                raise self.error(f"{where}: its content has another checksum")
        return content

    def decoded(self, content: Mapping[str, Any]) -> Record:
        """The record of a ``content``; raises as ``read``."""
        with _damage(self.path, self.way_out, self.error) as where:
            return decoded(content, self.kind, where, error=self.error)

    def write(self, record: Record, lock: OutputLock | None = None) -> None:
        """Replace the file; ``lock`` is that of the output, where the file has none of its own."""
        content = _plain(record)
        if self.has_checksum:
            content["checksum"] = json_checksum(content)
        atomic_write_json(self.path, content, lock)


@dataclass(frozen=True)
class Log(Generic[Record]):
    """A file of lines: settings, and a record for each thing that is done; see ``Journal``."""

    path: Path
    kind: type[Record]
    way_out: str
    limit: Limit

    def begin(self, settings: Mapping[str, Any], subject: str, advice: str) -> list[Record]:
        """What is done, where the file is there, or begin it.  Raises UsageError and DataError."""
        if not self.path.exists():
            atomic_write_text(self.path, _line(settings))
            return []
        with _damage(self.path, self.way_out, DataError) as where:
            lines = read_json_lines(self.path, self.limit, error=DataError)
            _, before = next(lines, ("", None))
            if before is None or before.keys().isdisjoint(settings):
                raise DataError(f"{where}: its first line does not hold settings")
            done = [decoded(each, self.kind, where, error=DataError) for _, each in lines if each]
        check_settings(before, settings, subject, advice)
        # What a kill has cut off would run into the next line.
        atomic_write_text(self.path, "".join(map(_line, (before, *map(_plain, done)))))
        return done

    def add(self, done: Iterable[Record]) -> None:
        append_text(self.path, "".join(_line(_plain(each)) for each in done))


@contextmanager
def _damage(path: Path, way_out: str, error: Failure) -> Iterator[str]:
    """Gives what begins a message about damage, and adds the way out to one that is raised."""
    try:
        yield f"{path} is damaged"
    except error as failure:
        raise error("; ".join(filter(None, (failure.message, way_out)))) from None


def _line(content: Mapping[str, Any]) -> str:
    return json.dumps(content) + "\n"


def _plain(record: msgspec.Struct) -> dict[str, Any]:
    content: dict[str, Any] = msgspec.to_builtins(record, enc_hook=plain_json)
    # The checksum is that of the file, which has null for NaN.
    return {name: plain_json(each) for name, each in content.items()}


def is_begun(directory: Path, names: Sequence[str], what: str) -> bool:
    """Whether an output was begun in a directory, which is made; UsageError for other things."""
    make_directory(directory)
    if any((directory / name).exists() for name in names):
        return True
    if contents(directory):
        raise UsageError(
            f"{param('out', directory)} is not empty, and no {what} was begun there; name a new "
            "directory"
        )
    return False


def check_settings(
    before: Mapping[str, Any], now: Mapping[str, Any], subject: str, advice: str
) -> None:
    """Raise UsageError that names each setting of ``now`` that was another one, with both values.

    ``subject`` begins it: "the trials in F were run"; ``advice`` says what to do.
    """
    lines = differences(before, now)
    if lines:
        raise UsageError("\n  ".join([f"{subject} with other settings; {advice}:", *lines]))


_NAMES: Final = {
    "model": "MODEL",
    "fingerprint": "MODEL",
    "task": "TASK",
    "vocabulary": "the vocabulary",
    "texts": "the texts",
    "pairs": "the pairs",
    "tidybert": "the version of tidybert",
}
"""Settings that are no flags, as a user knows them."""
_FILES: Final = "files"
_NAMED_FILES: Final = 3
_LONGEST_VALUE: Final = 60


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """A line for each setting of ``now`` that was another one, and for each file."""
    lines = []
    for name, value in now.items():
        was = before.get(name)
        if was == value:
            continue
        if name == _FILES:
            lines += _other_files(was, value)
        elif isinstance(was, Mapping) and isinstance(value, Mapping) and name not in _NAMES:
            lines += differences(was, {**dict.fromkeys(was), **value})
        else:
            lines.append(difference(name, was, value))
    return lines


def difference(name: str, before: Any, now: Any) -> str:
    """A setting with both values, if they tell a user something: "--seed: 42 before, 7 now"."""
    shown = _NAMES.get(name) or param(name)
    was, given = _value(before), _value(now)
    if was is None or given is None:
        return f"{shown}: not the same as before"
    return f"{shown}: {was} before, {given} now"


def _value(value: Any) -> str | None:
    """A value as it is shown; None for one that is long, and for a hash."""
    if value is None or isinstance(value, bool):
        return "given" if value else "not given"
    text = str(value)
    if isinstance(value, str) and (not text or text != text.strip()):
        # An empty text, or a blank at an end, must be seen.
        text = repr(value)
    return None if len(text) > _LONGEST_VALUE or re.fullmatch("[0-9a-f]{32,}", text) else text


def _other_files(before: Any, now: Any) -> list[str]:
    """Lines for files as [name, what shows that it changed, ...]."""
    old, new = ({each[0]: each[1:] for each in given or ()} for given in (before, now))
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    lines = [
        f"file {name}: {'missing' if name not in new else 'new' if name not in old else 'changed'}"
        for name in names[:_NAMED_FILES]
    ]
    more = len(names) - _NAMED_FILES
    return [*lines, f"and {more:,} more files"] if more > 0 else lines
