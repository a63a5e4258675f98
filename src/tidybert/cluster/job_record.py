"""manifest.jsonl in the folder of a job: the job, and a line for each file that is done.

A line is added when a file has its final name, so a killed job goes on with the others.  A line
that a kill has cut is no line.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tidybert import __version__
from tidybert.errors import DataError, UsageError, param
from tidybert.storage.atomic_files import append_text, atomic_write_text
from tidybert.storage.json_objects import plain_json, read_json_lines
from tidybert.storage.limits import Limit
from tidybert.storage.output_lock import contents
from tidybert.storage.own_files import make_directory

MANIFEST_FILE: Final = "manifest.jsonl"
_BYTES: Final = Limit("the manifest of a job", 2**31, "bytes")


@dataclass(frozen=True)
class FileDone:
    """A file of a job that is done.

    Args:
        input, input_bytes, input_state, input_sha256: the file that was read.
        output, output_bytes, output_sha256: the file that was written, below the folder.
        num_rows, num_skipped, num_truncated: its rows answered, left out as bad, and cut.
    """

    input: str
    input_bytes: int
    input_state: str
    input_sha256: str
    output: str
    output_bytes: int
    output_sha256: str
    num_rows: int
    num_skipped: int
    num_truncated: int


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
    """The files that are done by their input's name, of the manifest there or of a new one.

    Raises UsageError for a folder with other things in it or of another job, and DataError for a
    damaged manifest.
    """
    make_directory(directory)
    path = directory / MANIFEST_FILE
    if not path.exists():
        if contents(directory):
            raise UsageError(
                f"{param('out', directory)} is not empty, and no job was begun there; name a new "
                "folder"
            )
        atomic_write_text(path, _line(job))
        return {}
    lines = [content for _, content in read_json_lines(path, _BYTES, error=DataError)]
    first = lines[0] if lines else None
    if first is None or "job" not in first:
        raise DataError(f"{path} is damaged: its first line is not a job; name a new folder")
    other = sorted(name for name in {**first, **job} if first.get(name) != job.get(name))
    if other:
        raise UsageError(
            f"{param('out', directory)} holds the files of another job (another "
            f"{', '.join(other)}): give the same, or name a new folder"
        )
    try:
        done = [FileDone(**content) for content in lines[1:] if content is not None]
    except TypeError as error:
        raise DataError(f"{path} is damaged: {error}; name a new folder") from error
    # What a kill has cut off would run into the next line.
    atomic_write_text(path, "".join(map(_line, (first, *map(asdict, done)))))
    return {each.input: each for each in done}


def add_done(directory: Path, done: Iterable[FileDone]) -> None:
    """Note files that are done."""
    append_text(directory / MANIFEST_FILE, "".join(_line(asdict(each)) for each in done))


def _line(content: Mapping[str, Any]) -> str:
    return json.dumps(content) + "\n"
