"""A check of labels on disk: check.html, check.json, and CSVs with an empty column to fill in."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tidybert.data.corrections import COLUMN, csv_text
from tidybert.reporting.report_page import rendered
from tidybert.storage.atomic_files import atomic_directory, atomic_write_text

SHOWN: Final = 200
"""Examples in each list of the page; the other files have all."""
HTML_FILE: Final = "check.html"


def check_page(contents: Mapping[str, Any]) -> str:
    """The page of the contents of a check, see docs/check.md."""
    return rendered("check.html.j2", contents=contents, shown=SHOWN)


def write_check(contents: Mapping[str, Any], directory: Path) -> Path:
    """Write the files of a check into a new directory; returns the path of the page.

    Raises DiskError where it cannot be written.
    """
    text = json.dumps(contents, ensure_ascii=False, allow_nan=False, indent=1) + "\n"
    with atomic_directory(directory) as aside:
        atomic_write_text(aside / HTML_FILE, check_page(contents))
        atomic_write_text(aside / "check.json", text)
        if contents["labels"] is not None:
            atomic_write_text(aside / "corrections.csv", _corrections(contents))
        if contents["suggestions"] is not None:
            found = contents["suggestions"]
            columns = ["row", "text", *_pair_column(found), "label"]
            atomic_write_text(aside / "suggestions.csv", csv_text(found, columns))
    return directory / HTML_FILE


def _corrections(contents: Mapping[str, Any]) -> str:
    """A row for each suspected label and each text of a contradicting pair, and the reason."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for each in contents["labels"]["suspected"]:
        why = f"probability of the label {each['label_probability']:.3f}"
        rows[_place(each)] = {**each, "why": why}
    for pair in contents["contradicting"]:
        for one, other in (pair["texts"], pair["texts"][::-1]):
            why = f"almost the text of row {other['row']}, which is {other['label']}"
            known = rows.setdefault(_place(one), {**one, "why": ""})
            known["why"] = "; ".join(filter(None, (known["why"], why)))
    columns = ["row", "label", "suggested", COLUMN, "text", *_pair_column(rows.values()), "why"]
    return csv_text(rows.values(), columns)


def _place(each: Mapping[str, Any]) -> tuple[Any, ...]:
    """A JSON file of one line has all examples in one row."""
    return each["row"], each["text"], each["text_pair"]


def _pair_column(rows: Any) -> list[str]:
    return ["text_pair"] if any(each["text_pair"] is not None for each in rows) else []
