"""TextExample: what a row of a file of labelled texts holds."""

import ast
import json
import math
import re
import warnings
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Literal

from tidybert.errors import LimitError, param
from tidybert.files.columns import DRAWN, MISSING, LabelCells
from tidybert.files.rows import (
    finite_number,
    has_lone_surrogate,
    json_type,
    plain,
    text_problem,
)
from tidybert.storage.limits import LABELS


@dataclass(frozen=True, slots=True)
class TextExample:
    """One text or pair of texts, its label where the file has one, and its 1-based line there.

    ``labels`` are those of a text that may have any number of them, read with ``multi_label``;
    ``soft`` are the probabilities of its classes, of which ``label`` is the likeliest;
    ``columns`` are the other columns of the row, read with ``keep_columns``; without it those that
    a file of labels has beside them.
    """

    text: str
    text_pair: str | None
    label: str | None
    row: int
    labels: tuple[str, ...] | None = None
    columns: Mapping[str, object] | None = field(default=None, repr=False, compare=False)
    soft: Mapping[str, float] | None = field(default=None, repr=False, hash=False)

    @property
    def drawn(self) -> Literal["random", "chosen"] | None:
        """How it came to be labelled: at random, or chosen to teach a model; None if not known."""
        found = self.columns and self.columns.get(DRAWN)
        return found if found in ("random", "chosen") else None


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
        found.update(each.labels or (), each.soft or ())
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


def soft_label(value: object) -> Mapping[str, float] | str | None:
    """Probabilities of classes, above 0, that ``value`` holds; a message; None for one class.

    Votes are such numbers too: all are divided by their sum.
    """
    value = object_in(value)
    if isinstance(value, str) and value.lstrip().startswith("{"):
        return (
            f"the label {value[:40]!r} cannot be read; expected classes with a number each, such "
            "as {'a': 0.7, 'b': 0.3}"
        )
    if isinstance(value, LabelCells):
        value = {name: cell if cell != "" else None for name, cell in value.cells.items()}
    if not isinstance(value, Mapping):
        return None
    found: dict[str, float] = {}
    for key, each in value.items():
        name = canonical_label(key)
        number = 0.0 if each is None else finite_number(str(each))
        if name is None or number is None or number < 0 or isinstance(each, bool):
            return f"the label {str(key)[:40]!r} is {str(each)[:40]!r}; expected a number from 0 on"
        if number:
            found[name] = found.get(name, 0.0) + number
    total = math.fsum(found.values())
    if not 0 < total < math.inf:
        return "no label is above 0; give each class a probability, or a number of votes"
    return {name: number / total for name, number in found.items()}


# Labels that a cell spells otherwise than they are meant, which only a whole column shows.

_ITEM: Final = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[-+]?\d+\.?\d*|True|False)"""
_NUMPY_LIST: Final = re.compile(rf"\[\s*{_ITEM}(?:\s+{_ITEM})*\s*\]")
_MADE_BY: Final = ("frozenset", "set", "array")
_WHOLE: Final = re.compile(r"([+-]?[0-9]+)(\.0*)?")


class _Given(ast.NodeTransformer):
    """What Python's and NumPy's calls are given: array(['x'], dtype=object) is ['x']."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        called = ast.unparse(node.func)
        is_known = called in _MADE_BY or called.startswith("np.")
        return (node.args or [ast.List([])])[0] if is_known else node


def value_in(cell: str) -> object:
    """The list or object that a cell spells as JSON, Python or NumPy write them; None for others.

    Sets and tuples are lists.
    """
    cell = cell.strip()
    if not cell.startswith(("[", "(", "{", *(f"{name}(" for name in _MADE_BY))):
        return None
    if _NUMPY_LIST.fullmatch(cell):
        # To Python, 'x' 'y' is one text.
        cell = f"[{','.join(re.findall(_ITEM, cell))}]"
    try:
        return plain(json.loads(cell))
    except (ValueError, RecursionError):
        try:
            with warnings.catch_warnings(action="ignore"):
                return plain(ast.literal_eval(_Given().visit(ast.parse(cell, mode="eval"))))
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            return None


def object_in(value: object) -> object:
    """The object that a cell spells, such as probabilities by class; other values as they are."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        found = value_in(value)
        return found if isinstance(found, dict) else value
    return value


def list_in(cell: str) -> list[Any] | None:
    """The list of ``value_in``, of an object of truths, as spaCy's cats, the true keys; or None."""
    found = true_names(value_in(cell))
    return found if isinstance(found, list) else None


def true_names(value: object) -> object:
    """The keys that an object says are true, the choices of one of Label Studio, or the value."""
    if not isinstance(value, dict) or not value:
        return value
    if isinstance(value.get("choices"), list):
        return value["choices"]
    return [name for name in value if value[name]] if _are_flags(value.values()) else value


def _are_flags(values: Collection[object]) -> bool:
    return all(isinstance(one, int | float) and one in (0, 1) for one in values)


def plain_form(label: str) -> str | None:
    """A whole number without .0, or a truth in small letters; None for another label."""
    if found := _WHOLE.fullmatch(label):
        return found[1]
    return label.casefold() if label.casefold() in _TRUTH else None


WORDS: Final = "words"


def form_of(label: object) -> tuple[str, Any]:
    """The kind of a label, and what it means in a column of that kind; "" for a missing one."""
    if isinstance(label, str):
        text = label.strip()
        if (items := list_in(text)) is not None:
            return "lists", items
        form = plain_form(text)
        kind = "true or false" if form in _TRUTH else "whole numbers" if form else text and WORDS
        return kind, label if form in (None, text) else form
    if label is None or label is MISSING:
        return "", label
    if isinstance(label, bool | int | float):
        return "true or false" if isinstance(label, bool) else "whole numbers", label
    return "lists" if isinstance(label, list) else WORDS, label


def width_of_flags(label: object) -> int:
    """The length of a list of 0 and 1, which says of each label in turn whether it is given."""
    return len(label) if isinstance(label, list) and len(label) > 1 and _are_flags(label) else 0


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
