"""TextExample: what a row of a file of labelled texts holds."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from tidybert.errors import LimitError, param
from tidybert.files.columns import MISSING, LabelCells
from tidybert.files.rows import finite_number, has_lone_surrogate, json_type, text_problem
from tidybert.storage.limits import LABELS


@dataclass(frozen=True, slots=True)
class TextExample:
    """One text or pair of texts, its label where the file has one, and its 1-based line there.

    ``labels`` are those of a text that may have any number of them, read with ``multi_label``;
    ``columns`` are the other columns of the row, read with ``keep_columns``.
    """

    text: str
    text_pair: str | None
    label: str | None
    row: int
    labels: tuple[str, ...] | None = None
    columns: Mapping[str, object] | None = field(default=None, repr=False, compare=False)


# Labels in one spelling, their order, and the labels of a text that may have any number of them.
#
# Any number comes as a list, as one text, or as columns of 0 and 1, the layout of the Jigsaw
# comments.  An empty text or list is a text without labels.

MAX_EXACT_FLOAT: Final = 2**53  # above it a whole float may mean several integers
_TRUTH: Final = {"true": True, "false": False}


def label_names(examples: Iterable[TextExample]) -> list[str]:
    """The distinct labels: numbers first, in numeric order, then the others by code point.

    Raises LimitError for more labels than a classifier's scores are computed for.
    """
    found: set[str] = set()
    for each in examples:
        found.update(each.labels or ())
        if each.label is not None:
            found.add(each.label)
    if len(found) > LABELS.value:
        error = LABELS.error(f"{len(found):,}", "the training data")
        raise LimitError(f"{error.message}; is {param('label')} the right column?")
    return sorted(found, key=label_order)


def label_order(label: str) -> tuple[float, str]:
    """Sort key that puts "9" before "10", and numbers before words."""
    number = finite_number(label)
    return (math.inf if number is None else number, label)


def canonical_label(value: object) -> str | None:
    """A label in one spelling for all formats, or None for a value that cannot be one.

    Text loses the white space around it; 1 and 1.0 are both "1", 0.5 is "0.5", booleans "true" and
    "false".  A member of an enum is its name, unless it is a text or a number too.  None for an
    empty text, one with a lone surrogate, null, a number that is not finite, a list, an object,
    bytes.
    """
    if isinstance(value, str):
        return None if has_lone_surrogate(value) else value.strip() or None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, float) and math.isfinite(value):
        whole = value.is_integer() and abs(value) <= MAX_EXACT_FLOAT
        return str(int(value)) if whole else repr(value)
    return None


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
