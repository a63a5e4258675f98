"""report.html: the contents of a report as one page that needs nothing else.

The templates are in resources/report. The page loads nothing, prints, and follows the reader's
light or dark. Its one script, which sorts and filters, may be off. A content security policy allows
exactly this style and this script, so that even a mistake in escaping could not run a text.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_DOWN, Decimal
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tidybert.data.corrections import COLUMN, csv_text
from tidybert.metrics.metric import scale_of
from tidybert.reporting import pictures
from tidybert.reporting.drawing import element, picture_style, shown
from tidybert.storage.atomic_files import atomic_directory, atomic_write_text

Row = Mapping[str, Any]

_MANY_ROWS: Final = 12
# Differences below a thousandth mean nothing in these.
_PROBABILITIES: Final = ("confidence", "expected_probability", "margin")
_LEAST: Final = 0.001
_FACTS: Final = {
    "confidence": "confidence",
    "expected_probability": "probability of the expected class",
    "margin": "margin",
    "residual": "off by",
    "correct": "fraction that is right",
    "num_tokens": "tokens",
}


def report_page(contents: Mapping[str, Any]) -> str:
    return rendered("page.html.j2", contents=contents)


def rendered(template: str, **values: Any) -> str:
    """A page of one of the templates, with the style and the script of all pages."""
    files = resources.files("tidybert") / "resources/report"
    return (
        environment()
        .get_template(template)
        .render(
            **values,
            style=Markup((files / "report.css").read_text("utf-8") + picture_style()),
            script=Markup((files / "report.js").read_text("utf-8")),
        )
    )


@cache
def environment() -> Environment:
    """The templates, with the filters and pictures that they use."""
    made = Environment(
        loader=PackageLoader("tidybert", "resources/report"),
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {
        each.__name__: each
        for each in (
            *(number, told_apart, share, between, beginning, facts, columns, cells),
            *(weakest_first, most_frequent),
            *(scale_of, main_metrics, sha256, last_part, breakable, spaced, pictures.token_range),
            corrected_csv,
        )
    }
    made.globals["pictures"] = pictures
    return made


def number(value: float) -> str:
    """A number with its meaningful digits: three decimals, or three digits in all."""
    if isinstance(value, int):
        return f"{value:,}"
    if value and abs(value) < 0.1:
        return f"{value:.3g}" if abs(value) < 0.01 else f"{value:.3f}"
    return f"{value:.3f}" if abs(value) < 100 else f"{value:,.0f}"


def told_apart(values: Sequence[float], least: int = 3) -> list[str]:
    """Thresholds with as many decimals as tell them apart, rounded down: what they let pass stays.

    >>> told_apart([0.9986, 0.99991, 0.99997])
    ['0.99860', '0.99991', '0.99997']
    """
    for digits in range(least, 18):
        unit = Decimal(1).scaleb(-digits)
        found = [f"{Decimal(str(value)).quantize(unit, ROUND_DOWN)}" for value in values]
        if len(set(found)) == len(found):
            break
    return found


def share(value: float) -> str:
    return f"{100 * value:.1f} %"


def between(group: Row) -> str:
    """An interval that no line break can split; empty without one."""
    if group["low"] is None:
        return ""
    return f"{number(group['low'])} to {number(group['high'])}".replace(" ", "\u00a0")


def beginning(text: str, longest: int) -> str:
    """The text, or the beginning of a longer one, cut at a space of its second half."""
    if len(text) <= longest:
        return text
    start = text[:longest]
    start = start[: start.rfind(" ")] if " " in start[longest // 2 :] else start
    return start.rstrip(" .,\n") + "…"


def facts(example: Row) -> list[str]:
    """Where an example is, and the numbers that put it on a list."""
    # A published SQuAD file is a single line, so an id says more than the row.
    place = f"row {example['row']:,}" if example["id"] is None else f"id {example['id']}"
    found = [place]
    for key, name in _FACTS.items():
        value = example.get(key)
        # The answers already show what is entirely right or wrong.
        if value is None or (key == "correct" and value in (0, 1)):
            continue
        below = key in _PROBABILITIES and value < _LEAST
        found.append(f"{name} below {_LEAST}" if below else f"{name} {number(value)}")
    return found


def columns(rows: Iterable[Row]) -> list[str]:
    """The keys of all rows, in the order in which they first appear."""
    return list(dict.fromkeys(key for row in rows for key in row))


def last_part(path: str) -> str:
    return Path(path).name or path


def breakable(path: str) -> Markup:
    """A path that lines break after slashes; only a part that no line can hold breaks elsewhere."""
    parts = re.findall("[^/]*/|[^/]+", path)
    return Markup().join(element('<span class="part">{}</span>', part) for part in parts)


def spaced(name: str) -> Markup:
    """A metric's name that lines break after underscores: macro_average_precision."""
    return Markup("_<wbr/>").join(name.split("_"))


def main_metrics(contents: Row) -> list[str]:
    """The two metrics to show first; the one that picked the weights leads."""
    return sorted(contents["metrics"], key=lambda name: name != contents["metric"])[:2]


def cells(row: Row, keys: Sequence[str]) -> list[Any]:
    return [row.get(key) for key in keys]


def weakest_first(rows: Mapping[str, Row]) -> list[tuple[str, Row]]:
    """Many rows by rising F1; few rows in their own order."""
    if len(rows) <= _MANY_ROWS:
        return list(rows.items())
    return sorted(rows.items(), key=lambda row: row[1].get("f1", 0.0))


def most_frequent(rows: Mapping[str, Row], count: int) -> list[tuple[str, Row]]:
    """So many rows at most, those with the most examples, in their own order."""
    kept = sorted(rows, key=lambda name: -rows[name]["num_examples"])[:count]
    return [(name, row) for name, row in rows.items() if name in kept]


def sha256(text: str) -> str:
    """The digest of a text as a content security policy spells it."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


# A check of labels on disk: check.html, check.json, and CSVs with an empty column to fill in.

SHOWN: Final = 200
"""Examples in each list of the page; the other files have all."""
HTML_FILE: Final = "check.html"


def check_page(contents: Mapping[str, Any]) -> str:
    return rendered("check.html.j2", contents=contents, shown=SHOWN)


def write_check(contents: Mapping[str, Any], directory: Path) -> Path:
    """Write the files of a check into a new directory; returns the path of the page."""
    text = json.dumps(contents, ensure_ascii=False, allow_nan=False, indent=1) + "\n"
    with atomic_directory(directory) as aside:
        atomic_write_text(aside / HTML_FILE, check_page(contents))
        atomic_write_text(aside / "check.json", text)
        if contents["labels"] is not None:
            atomic_write_text(aside / "corrections.csv", _corrections(contents))
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


def corrected_csv(suspect: Mapping[str, Any]) -> str:
    """A file of corrections with the suggested label of one text."""
    columns = ["row", "label", COLUMN, "text", *_pair_column([suspect])]
    return csv_text([{**suspect, COLUMN: suspect["suggested"]}], columns)


def _place(each: Mapping[str, Any]) -> tuple[Any, ...]:
    """A JSON file of one line has all examples in one row."""
    return each["row"], each["text"], each["text_pair"]


def _pair_column(rows: Any) -> list[str]:
    return ["text_pair"] if any(each["text_pair"] is not None for each in rows) else []
