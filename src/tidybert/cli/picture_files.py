"""Pictures that a command writes: an SVG, or a page that needs no other file."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidybert.cli.output import note
from tidybert.errors import UsageError

if TYPE_CHECKING:
    from tidybert.explain.shown import Shown

SUFFIXES: Final = (".svg", ".html")


def check_picture(flag: str, path: Path | None) -> None:
    """Raise UsageError for a file whose name ends in another way, before the work begins."""
    if path is not None and path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{flag} {path}: expected a name that ends in {' or '.join(SUFFIXES)}")


def write_picture(shown: "Shown", path: Path) -> None:
    """Write the picture of a result; a page has its table too."""
    from tidybert.storage.atomic_files import atomic_write_text

    if path.suffix.lower() == ".html":
        atomic_write_text(path, shown.page())
    else:
        shown.plot().save(path)
    note(f"{path}: written")
