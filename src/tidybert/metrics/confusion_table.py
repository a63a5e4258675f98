"""A confusion matrix as text for a terminal."""

import unicodedata
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

LINE_WIDTH: Final = 80
SHOWN_CONFUSIONS: Final = 10
NAME_WIDTH: Final = 16


def confusion_table(matrix: npt.NDArray[np.integer[Any]], label_names: Sequence[str]) -> str:
    """The confusion matrix as plain text, at most 80 columns wide.

    Lists the most frequent confusions if the matrix has too many classes for a table.
    """
    names = [_cut(name, NAME_WIDTH) for name in label_names]
    corner = "true \\ predicted"
    first = max(_width(text) for text in (corner, *names))
    cells = [[f"{count:,}" for count in row] for row in matrix.tolist()]
    widths = [
        max(_width(name), *(len(row[at]) for row in cells)) + 2 for at, name in enumerate(names)
    ]
    if first + sum(widths) > LINE_WIDTH:
        return _top_confusions(matrix, label_names)
    lines = [[corner, *names], *([name, *row] for name, row in zip(names, cells, strict=True))]
    return "\n".join(
        _pad(line[0], first)
        + "".join(_pad(text, -width) for text, width in zip(line[1:], widths, strict=True))
        for line in lines
    )


def _top_confusions(matrix: npt.NDArray[np.integer[Any]], label_names: Sequence[str]) -> str:
    wrong = np.array(matrix)
    np.fill_diagonal(wrong, 0)
    total = int(wrong.sum())
    if not total:
        return f"no confusion among {len(label_names)} classes"
    # A stable sort keeps equal counts in the order of the classes.
    order = np.argsort(-wrong, axis=None, kind="stable")[:SHOWN_CONFUSIONS]
    pairs = [divmod(int(at), len(label_names)) for at in order if wrong.flat[at]]
    counts = [f"{int(wrong[pair]):,}" for pair in pairs]
    count_width = max(len(count) for count in counts)
    room = (LINE_WIDTH - count_width - len("  ") - len(" taken for ")) // 2
    names = [_cut(name, room) for name in label_names]
    first = max(_width(names[true]) for true, _ in pairs)
    lines = [
        f"{count:>{count_width}}  {_pad(names[true], first)} taken for {names[predicted]}"
        for count, (true, predicted) in zip(counts, pairs, strict=True)
    ]
    shown = sum(int(wrong[pair]) for pair in pairs)
    rest = [f"and {total - shown:,} more confusions"] if total > shown else []
    return "\n".join([*lines, *rest])


def _width(text: str) -> int:
    """Terminal columns: East Asian wide characters take two, combining marks none."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def _cut(text: str, width: int) -> str:
    text = "".join(char if char.isprintable() else " " for char in text)
    if _width(text) <= width:
        return text
    while _width(text) > width - 1:
        text = text[:-1]
    return text + "…"


def _pad(text: str, width: int) -> str:
    """Fill up with spaces, on the left if ``width`` is negative."""
    space = " " * (abs(width) - _width(text))
    return space + text if width < 0 else text + space
