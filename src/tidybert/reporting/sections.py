"""The sections of the page, each from its part of the contents; None where there is nothing.

Here stand their order, and those that are tables: the metrics, and the classes one by one.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tidybert.reporting.confusion import MOST_CLASSES, confusion_picture
from tidybert.reporting.figures import confidence, lengths, scores, training
from tidybert.reporting.listing import errors, suspects, uncertain
from tidybert.reporting.markup import Markup, join, tag
from tidybert.reporting.pictures import interval_picture
from tidybert.reporting.tables import as_table, between, share, table

Contents = Mapping[str, Any]

_MOST_IN_MATRIX_TABLE: Final = 20
_SHOWN_PAIRS: Final = 15
_LONG: Final = 12
_UNBOUNDED: Final = ("log_loss", "mse")
"""Metrics of which 1 is no end."""


def metrics(contents: Contents) -> Markup:
    """Each metric with its interval, and what it says."""
    rows = []
    for name, one in contents["metrics"].items():
        low, value, high = one["low"], one["value"], one["high"]
        has = low is not None
        drawn = has and 0 <= low <= high <= 1 and name not in _UNBOUNDED
        rows.append(
            [
                name,
                value,
                between(low, high) if has else None,
                interval_picture(low, value, high) if drawn else "",
                one["meaning"],
            ]
        )
    level = contents["bootstrap"]["level"] if contents["bootstrap"] else 0.95
    headings = ["metric", "value", f"{100 * level:g} % interval", "from 0 to 1", "says"]
    return join(
        [
            table(headings, rows, caption="Metrics with their intervals"),
            tag(
                "p",
                "An interval says how far a figure may be off because these examples are only a "
                "sample of their kind: about 95 of 100 intervals made in this way hold the figure "
                "that endless examples of the kind would give. It says nothing of other kinds.",
            ),
        ]
    )


def classes(contents: Contents) -> Markup | None:
    """Scores of each label."""
    made = []
    for name, rows in contents["tables"].items():
        keys = list(dict.fromkeys(key for row in rows.values() for key in row))
        first = name.removeprefix("per_").replace("_", " ")
        listed = [[label, *(row.get(key) for key in keys)] for label, row in _ordered(rows)]
        made.append(table([first, *keys], listed, caption=f"Scores by {first}", sortable=True))
    return join(made) if made else None


def confusions(contents: Contents) -> Markup | None:
    """Which classes are taken for which."""
    found = contents["confusion"]
    if not found:
        return None
    names, matrix = found["label_names"], found["matrix"]
    made = []
    if len(names) <= MOST_CLASSES:
        drawn = confusion_picture(names, matrix)
        scroll = tag(
            "div", drawn, class_="scroll", tabindex=0, role="region", aria_label="Confusion matrix"
        )
        caption = (
            "A row is a true class, a column the predicted one; the stronger a cell, the larger "
            "its share of the row. Blue is right, orange is wrong."
        )
        made.append(tag("figure", scroll, tag("figcaption", caption)))
    else:
        made.append(tag("p", f"{len(names)} classes are too many for a picture of the matrix."))
    if len(names) <= _MOST_IN_MATRIX_TABLE:
        rows = [[name, *line] for name, line in zip(names, matrix, strict=True)]
        caption = "Counts: a row is a true class, a column the predicted one"
        made.append(as_table(table(["true", *names], rows, caption=caption)))
    if found["pairs"] and len(names) > 2:
        rows = [
            [pair["expected"], pair["predicted"], pair["count"], share(pair["share_of_expected"])]
            for pair in found["pairs"][:_SHOWN_PAIRS]
        ]
        caption = f"The most frequent of {found['num_confusions']:,} confusions"
        headings = ["true class", "taken for", "examples", "share of the true class"]
        made.append(table(headings, rows, caption=caption))
    return join(made)


SECTIONS: Final[Mapping[str, tuple[str, Callable[[Contents], Markup | None]]]] = {
    "metrics": ("Metrics", metrics),
    "scores": ("Predicted and true scores", scores),
    "confidence": ("Confidence", confidence),
    "confusions": ("Confusions", confusions),
    "classes": ("By class", classes),
    "length": ("Length", lengths),
    "errors": ("Errors", errors),
    "uncertain": ("Closest calls", uncertain),
    "suspects": ("Suspected label errors", suspects),
    "training": ("Training", training),
}


def _ordered(rows: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, Mapping[str, Any]]]:
    """Few rows as they stand; many with the weakest first."""
    if len(rows) <= _LONG:
        return list(rows.items())
    return sorted(rows.items(), key=lambda row: row[1].get("f1", 0.0))
