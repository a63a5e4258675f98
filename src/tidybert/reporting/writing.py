"""A report on disk: a directory with report.json and report.html, written as a whole."""

import json
import os
from pathlib import Path
from typing import Final

from tidybert.atomic_files import atomic_directory
from tidybert.errors import UsageError, param
from tidybert.reporting.contents import report_contents
from tidybert.reporting.evaluation import Evaluation
from tidybert.reporting.page import report_page

JSON_FILE: Final = "report.json"
HTML_FILE: Final = "report.html"


def check_report_directory(directory: Path) -> None:
    """Raise UsageError where a report cannot be written.

    The directory may be a file, may contain files of another program, or may be in a folder
    without write permission.
    """
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
    names = {path.name for path in directory.iterdir()}
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


def write_report(evaluation: Evaluation, directory: str | Path) -> Path:
    """Write report.json and report.html, or replace an earlier report as a whole.

    Returns the path of the page. Raises UsageError where the report cannot be written, see
    ``check_report_directory``.
    """
    # A link or "." would be replaced itself, not the directory that it leads to.
    target = Path(directory).resolve()
    check_report_directory(target)
    contents = report_contents(evaluation)
    text = json.dumps(contents, ensure_ascii=False, allow_nan=False, indent=1) + "\n"
    page = report_page(contents)
    try:
        with atomic_directory(target) as aside:
            (aside / JSON_FILE).write_text(text, encoding="utf-8", newline="\n")
            (aside / HTML_FILE).write_text(page, encoding="utf-8", newline="\n")
    except OSError as error:
        raise UsageError(f"{param('report', directory)} cannot be written: {error}") from error
    return Path(directory) / HTML_FILE


def _is_report(path: Path) -> bool:
    try:
        return "report_version" in json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return False
