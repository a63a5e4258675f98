"""The names of temporary files, by which the next owner of a lock finds what a dead one left.

``.NAME.TOKEN-N.partial`` is being written, ``.NAME.TOKEN-N.replaced`` waits for its successor, and
``.NAME.TOKEN-N.part`` grows and can be resumed.  TOKEN is the owner's, drawn at random.
"""

import os
import re
from pathlib import Path
from typing import Final

from tidybert.storage.disk_errors import writing
from tidybert.storage.own_files import remove_tree

PARTIAL: Final = ".partial"
REPLACED: Final = ".replaced"
PART: Final = ".part"
_LONGEST_NAME: Final = 40


def temporary_path(target: Path, token: str, number: int, suffix: str) -> Path:
    """A path beside ``target``."""
    # Only what is put back needs its whole name.
    name = target.name if suffix == REPLACED else target.name[:_LONGEST_NAME]
    return target.with_name(f".{name}.{token}-{number}{suffix}")


def is_part_name(name: str) -> bool:
    """Whether this is the name of a part, and no path."""
    found = re.fullmatch(r"\..*\.[0-9a-f]{12}-[0-9]+\.part", name, re.DOTALL)
    return found is not None and Path(name).name == name


def journal_of(part: Path) -> Path:
    """The file beside a part that says how much of it is whole."""
    return part.with_name(f"{part.name}.json")


def clear_leftovers(target: Path, token: str) -> None:
    """Remove what the owner of ``token`` left beside ``target`` and in it, except for parts.

    What it moved away and did not replace gets its name back.
    """
    name_of = re.compile(rf"\.(.*)\.{token}-[0-9]+({re.escape(PARTIAL)}|{re.escape(REPLACED)})")
    found = list(target.parent.iterdir()) if os.access(target.parent, os.R_OK) else []
    for folder, folders, files in os.walk(target):
        found += [Path(folder, name) for name in (*folders, *files)]
    for path in found:
        match = name_of.fullmatch(path.name)
        if match is None:
            continue
        original = path.with_name(match[1])
        if match[2] == REPLACED and not os.path.lexists(original):
            with writing(path, "be removed"):
                path.rename(original)
        else:
            remove_tree(path)
