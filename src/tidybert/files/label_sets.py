"""The labels of a text that may have any number of them: a list, one text, or columns of 0 and 1.

Columns of 0 and 1 are the layout of the Jigsaw comments; a text with a separator and a JSON list
are those of most others.  No label at all is legal, and is spelt by an empty text or list.
"""

from collections.abc import Iterable
from typing import Final

from tidybert.files.labels import canonical_label, finite_number
from tidybert.files.table_cells import MISSING, LabelCells
from tidybert.files.wording import json_type, text_problem

_TRUTH: Final = {"true": True, "false": False}


def labels_of(value: object, separator: str) -> tuple[str, ...] | str:
    """The labels that ``value`` holds, each once, in its order; a message where it holds none.

    A text is split at ``separator``; the members of a list are taken as they are.
    """
    if isinstance(value, LabelCells):
        return _true_columns(value)
    if isinstance(value, list):
        labels = [canonical_label(each) for each in value]
        if None in labels:
            return f"{json_type(value[labels.index(None)])} among the labels; give texts or numbers"
        return _once(label for label in labels if label is not None)
    if isinstance(value, str):
        if problem := text_problem("labels", value):
            return problem
        parts = [part.strip() for part in value.split(separator)] if value.strip() else []
        if "" in parts:
            return f"an empty label in {value[:40]!r}, whose labels {separator!r} separates"
        return _once(parts)
    label = canonical_label(value)
    if label is None:
        what = "missing" if value is MISSING else json_type(value)
        return f"the labels are {what}; for a text without any give an empty list or text"
    return (label,)


def _true_columns(row: LabelCells) -> tuple[str, ...] | str:
    labels = []
    for name, cell in row.cells.items():
        spelt = canonical_label(cell) or ""
        truth = _TRUTH.get(spelt.casefold(), finite_number(spelt))
        if truth not in (0, 1):
            shown = repr(cell[:40]) if isinstance(cell, str) else json_type(cell)
            return f"{name!r} is {shown} where 0 or 1 is expected"
        if truth:
            labels.append(name)
    return tuple(labels)


def _once(labels: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(labels))
