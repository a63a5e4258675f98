"""How far a build is, on the disk, so that it can go on after a stop of any kind.

progress.json holds the build's settings, how far it has read and how long each file was then;
digests.bin has the hashes of the documents seen, and bands.bin those for near-duplicates.  A
finished corpus has none of them.
"""

import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from tidybert.corpus.new_documents import Reading
from tidybert.corpus.sources import Source
from tidybert.errors import DataError, UsageError, param
from tidybert.storage.atomic_files import atomic_write_text
from tidybert.storage.json_objects import json_checksum, read_json_object
from tidybert.storage.limits import MANIFEST_BYTES
from tidybert.storage.output_lock import contents
from tidybert.storage.own_files import make_directory, remove_tree

PROGRESS_FILE: Final = "progress.json"
DIGESTS_FILE: Final = "digests.bin"
BANDS_FILE: Final = "bands.bin"
EXCLUDED_FILE: Final = "excluded.jsonl"
_NAMED_FILES: Final = 3
# Hashing works outside Python's lock.
_HASHING_THREADS: Final = 2


@dataclass
class Progress:
    """How far a build is.

    held_out: the share of the documents to hold out, at least that of the settings.
    num_digests: documents whose hashes are in digests.bin.
    num_without_tokens: how many of those have no token.
    num_near_duplicates, num_excluded: how many of the others were left out.
    sizes: bytes of the files that grow beside the shards.
    written: for each part, its documents from each file.
    parts: the writers' states.
    """

    settings: dict[str, Any]
    held_out: float
    reading: Reading = field(default_factory=Reading)
    num_digests: int = 0
    num_without_tokens: int = 0
    num_near_duplicates: int = 0
    num_excluded: int = 0
    sizes: dict[str, int] = field(default_factory=dict)
    written: dict[str, list[int]] = field(default_factory=dict)
    parts: dict[str, Any] = field(default_factory=dict)

    def write(self, directory: Path) -> None:
        """Replace progress.json, whole."""
        content = asdict(self)
        content["checksum"] = json_checksum(content)
        atomic_write_text(directory / PROGRESS_FILE, json.dumps(content) + "\n")


def begin(directory: Path, settings: dict[str, Any]) -> Progress:
    """The progress of an earlier run, or that of a new one in a directory that this makes.

    Raises UsageError for a directory with other things in it or begun with other settings, and
    DataError for a damaged progress.json.
    """
    make_directory(directory)
    path = directory / PROGRESS_FILE
    if not path.exists():
        if contents(directory):
            raise UsageError(
                f"{param('out', directory)} is not empty, and no corpus was begun there; name a "
                "new directory"
            )
        progress = Progress(settings, settings["held_out"])
        progress.write(directory)
        return progress
    try:
        content = read_json_object(path, MANIFEST_BYTES, error=DataError)
        if content.pop("checksum", None) != json_checksum(content):
            raise ValueError("it is not what was written")
        for name in ("settings", "reading", "written", "parts"):
            if not isinstance(content[name], dict):
                raise TypeError(f"{name} is not an object")
        progress = Progress(**{**content, "reading": Reading(**content["reading"])})
        other = other_settings(progress.settings, settings)
    except (ValueError, TypeError, LookupError) as error:
        raise DataError(
            f"{path}: damaged ({error}); remove {directory} and build the corpus again"
        ) from error
    if other:
        raise UsageError(
            f"{param('out', directory)} holds a corpus begun with other settings "
            f"({', '.join(other)}); repeat those settings to continue it, or name a new directory"
        )
    return progress


def described_files(files: Sequence[Source]) -> list[list[Any]]:
    """Each file's name, bytes and hash: an edited file is another file, whatever its size."""
    with ThreadPoolExecutor(_HASHING_THREADS) as pool:
        digests = list(pool.map(Source.content_hash, files))
    return [
        # corpus.json is UTF-8, which the name of a file need not be.
        [os.fsencode(file).decode("utf-8", "backslashreplace"), file.num_bytes, digest]
        for file, digest in zip(files, digests, strict=True)
    ]


def other_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The names of the settings that differ, and for the files which: "files: a.txt changed"."""
    other = [name for name in now if name != "files" and before.get(name) != now[name]]
    old, new = ({each[0]: each[1:] for each in given["files"]} for given in (before, now))
    names = [
        f"{name} {'missing' if name not in new else 'new' if name not in old else 'changed'}"
        for name in {**old, **new}
        if old.get(name) != new.get(name)
    ]
    if names:
        more = f" and {len(names) - _NAMED_FILES:,} more" if len(names) > _NAMED_FILES else ""
        other.append(f"files: {', '.join(names[:_NAMED_FILES])}{more}")
    return other


def remove_progress(directory: Path) -> None:
    """Remove the files that only a build needs."""
    remove_tree(directory / PROGRESS_FILE)
    remove_tree(directory / DIGESTS_FILE)
    remove_tree(directory / BANDS_FILE)
