"""A report on disk: a directory with report.json and report.html, written as a whole."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any, Final

from tidybert.errors import TidyBertError, UsageError, param
from tidybert.reporting.contents import report_contents
from tidybert.reporting.evaluation import Evaluation
from tidybert.reporting.report_page import report_page
from tidybert.storage.atomic_files import atomic_directory, atomic_write_text
from tidybert.storage.json_objects import read_json_object
from tidybert.storage.limits import REPORT_BYTES
from tidybert.storage.output_lock import contents, output_lock

JSON_FILE: Final = "report.json"
HTML_FILE: Final = "report.html"


def check_report_directory(directory: Path) -> None:
    """Raise UsageError for a file, another program's directory, or a place without permission."""
    if not directory.exists():
        folder = next(each for each in directory.absolute().parents if each.exists())
        if not (folder.is_dir() and os.access(folder, os.W_OK)):
            raise UsageError(
                f"{param('report', directory)} cannot be written: {folder} is not a writable "
                "folder; name another"
            )
        return
    if not directory.is_dir():
        raise UsageError(f"{param('report', directory)} is a file; name a directory")
    names = {path.name for path in contents(directory)}
    foreign = sorted(names - {JSON_FILE, HTML_FILE})
    if foreign:
        raise UsageError(
            f"{param('report', directory)} holds {foreign[0]!r}"
            + (f" and {len(foreign) - 1:,} more that are" if len(foreign) > 1 else ", which is")
            + " not part of a report; name a new directory"
        )
    if names and not _is_report(directory / JSON_FILE):
        raise UsageError(
            f"{param('report', directory)} holds {', '.join(sorted(names))} of another program; "
            "name a new directory"
        )


@contextmanager
def owned_report(directory: Path) -> Iterator[None]:
    """Within the block this process alone writes the report."""
    check_report_directory(directory)
    with output_lock(directory):
        check_report_directory(directory)
        yield


def write_report(evaluation: Evaluation, directory: str | Path) -> Path:
    """Write report.json and report.html, or replace an earlier report as a whole."""
    # A link or "." would be replaced itself, not the directory that it leads to.
    target = Path(directory).resolve()
    check_report_directory(target)
    contents = report_contents(evaluation)
    text = json.dumps(contents, ensure_ascii=False, allow_nan=False, indent=1) + "\n"
    page = report_page(contents)
    with atomic_directory(target) as aside:
        atomic_write_text(aside / JSON_FILE, text)
        atomic_write_text(aside / HTML_FILE, page)
    return Path(directory) / HTML_FILE


def _is_report(path: Path) -> bool:
    try:
        return "report_version" in read_json_object(path, REPORT_BYTES)
    except TidyBertError:
        return False


# A report as an object: its page shows itself in a notebook, and can be written.


class ShownReport:
    """The page of an evaluation."""

    def __init__(self, evaluation: Evaluation) -> None:
        self.evaluation = evaluation

    @cached_property
    def contents(self) -> dict[str, Any]:
        """The values of report.json; docs/trust.md has the keys."""
        return report_contents(self.evaluation)

    @property
    def metrics(self) -> dict[str, Any]:
        """By name: value, low and high of the interval, baseline and meaning."""
        found: dict[str, Any] = self.contents["metrics"]
        return found

    def save(self, directory: str | Path) -> Path:
        """Write report.html and report.json; returns the page's path.  See ``write_report``."""
        return write_report(self.evaluation, directory)

    def __repr__(self) -> str:
        shown = self.evaluation
        return f"{type(self).__name__}(model={shown.model!r}, data={shown.data!r})"

    def _repr_html_(self) -> str:
        # A frame of its own keeps the notebook's styles and the page's apart.
        page = escape(report_page(self.contents))
        return f'<iframe srcdoc="{page}" style="width:100%;height:40em;border:0"></iframe>'
