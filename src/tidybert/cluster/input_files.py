"""The files of a job: a folder, a pattern or one file, in one order on every machine."""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path, PurePath, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

import msgspec

from tidybert import __version__
from tidybert.corpus.documents import refuse_links
from tidybert.errors import DataError, UsageError, param
from tidybert.files.rows import count_of
from tidybert.storage.journal import Count, Log, is_begun
from tidybert.storage.json_objects import plain_json
from tidybert.storage.limits import Limit
from tidybert.storage.opening import is_plain_name
from tidybert.storage.own_files import GrowingFile
from tidybert.storage.remote_files import fetch, is_remote, remote_files

AnyPath = TypeVar("AnyPath", bound=PurePath)


@dataclass(frozen=True, order=True)
class InputFile:
    """A file to read, and what shows that it changed.

    Args:
        name: below the folder of the job, with "/": "2026/part-0.csv".  Its output has this name
            and a suffix more.
        path: absolute, or a URL, as each worker opens it.
        num_bytes: its size.
        state: when it was written, or a hash that its store knows.
    """

    name: str
    path: str
    num_bytes: int
    state: str

    @contextmanager
    def here(self) -> Iterator[Path]:
        """The file on this machine: within the block a copy of one that lies elsewhere."""
        if not is_remote(self.path):
            yield Path(self.path)
            return
        with TemporaryDirectory(prefix="tidybert-input-") as folder:
            file = GrowingFile(Path(folder) / PurePosixPath(self.name).name)
            fetch(self.path, file.write)
            file.sync()
            file.close()
            yield file.path


def input_files(given: str, suffixes: Collection[str]) -> list[InputFile]:
    """The files that ``given`` names, sorted by name."""
    if is_remote(given):
        return sorted(_remote_files(given, suffixes))
    path = Path(given)
    if path.is_dir():
        root, found = path, [each for each in path.rglob("*") if each.is_file()]
        found = [each for each in found if not _is_hidden(each.relative_to(path))]
        refuse_links(given, found)
        _check_suffixes(given, found, suffixes)
    elif has_magic(given):
        # Path.glob takes no pattern that begins at the root.
        found = [Path(each) for each in glob(given, recursive=True)]  # noqa: PTH207
        found = [each for each in found if each.is_file()]
        root = _fixed_part(path)
    else:
        if not path.is_file():
            raise DataError(f"{given}: no such file or folder")
        root, found = path.parent, [path]
    if not found:
        raise DataError(f"{given}: no file {'matches' if has_magic(given) else 'is in the folder'}")
    return sorted(_described(each, root) for each in found)


def _described(path: Path, root: Path) -> InputFile:
    status = path.stat()
    name = path.relative_to(root).as_posix()
    return InputFile(name, str(path.absolute()), status.st_size, str(status.st_mtime_ns))


def _remote_files(given: str, suffixes: Collection[str]) -> Iterator[InputFile]:
    found = remote_files(given)
    paths = [PurePosixPath(each.url) for each in found]
    if has_magic(given):
        root = _fixed_part(PurePosixPath(given))
    elif paths == [PurePosixPath(given)]:
        root = paths[0].parent
    else:
        root = PurePosixPath(given)
        _check_suffixes(given, paths, suffixes)
    for file, path in zip(found, paths, strict=True):
        name = path.relative_to(root).as_posix()
        # Its output has this name.
        if not is_plain_name(name, folders=len(path.parts)):
            raise DataError(f"{file.url}: its name below {root} is no plain one")
        yield InputFile(name, file.url, file.num_bytes, f"{file.content} {file.when}")


def _check_suffixes(given: str, found: Sequence[AnyPath], suffixes: Collection[str]) -> None:
    """Raise UsageError where a folder holds other files too."""
    odd = sorted(each for each in found if _suffix(each) not in suffixes)
    if odd:
        raise UsageError(
            f"{given}: {count_of(len(odd), 'file')} with an unknown suffix, first {odd[0]}; name "
            f"the files to read, for example '{given.rstrip('/')}/*.parquet'"
        )


def _fixed_part(pattern: AnyPath) -> AnyPath:
    """The folders of a pattern before the first one with a wildcard."""
    fixed = type(pattern)(pattern.anchor)
    for part in pattern.parts[len(fixed.parts) : -1]:
        if has_magic(part):
            break
        fixed /= part
    return fixed


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _suffix(path: PurePath) -> str:
    return PurePath(path.name.lower().removesuffix(".gz")).suffix


# manifest.jsonl in the folder of a job: the job, and a line for each file that is done.
#
# A line is added when a file has its final name, so a killed job goes on with the others.  A line
# that a kill has cut is no line.

MANIFEST_FILE: Final = "manifest.jsonl"
_BYTES: Final = Limit("the manifest of a job", 2**31, "bytes")


class FileDone(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A file of a job that is done.

    Args:
        input, input_bytes, input_state, input_sha256: the file that was read.
        output, output_bytes, output_sha256: the file that was written, below the folder.
        num_rows, num_skipped, num_truncated: its rows answered, left out as bad, and cut.
        reasons: how many of those left out have each reason.
    """

    input: str
    input_bytes: Count
    input_state: str
    input_sha256: str
    output: str
    output_bytes: Count
    output_sha256: str
    num_rows: Count
    num_skipped: Count
    num_truncated: Count
    reasons: dict[str, Count] = {}


def job_line(name: str, fingerprint: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The first line: all that the outputs depend on beside their inputs."""
    line = {"job": name, "tidybert": this_version(), "model": fingerprint, **settings}
    return dict(json.loads(json.dumps(plain_json(line))))


def this_version() -> str:
    """tidybert's version and the first digits of a hash of its code: "0.1.0 3f2a…"."""
    package, digest = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode())
        digest.update(path.read_bytes())
    return f"{__version__} {digest.hexdigest()[:12]}"


def begin_manifest(directory: Path, job: Mapping[str, Any]) -> dict[str, FileDone]:
    """The files that are done by their input's name, of the manifest there or of a new one."""
    is_begun(directory, [MANIFEST_FILE], "job")
    subject, advice = (
        f"{param('out', directory)} holds a job",
        "give the same, or name a new folder",
    )
    return {each.input: each for each in _manifest(directory).begin(job, subject, advice)}


def add_done(directory: Path, done: Iterable[FileDone]) -> None:
    """Note files that are done."""
    _manifest(directory).add(done)


def _manifest(directory: Path) -> Log[FileDone]:
    return Log(directory / MANIFEST_FILE, FileDone, "name a new folder", _BYTES)
