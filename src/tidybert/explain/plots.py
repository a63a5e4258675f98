"""The pictures of results: matrices, bars, lines over the layers, strips of numbers, and a map."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from tidybert.reporting.drawing import (
    CellTable,
    Frame,
    Picture,
    around,
    cut,
    element,
    moved,
    room_for,
    shades,
    text,
)

_LONGEST_TITLE: Final = 90
_HEADING: Final = 36.0
# With more pieces, a matrix is an image without names.
_MOST_LABELS: Final = 80
_CELL, _SMALL_SIDE = 20.0, 64.0
_MOST_TALL_BARS: Final = 30
_STRIP_WIDTH, _STRIP_ROW = 560.0, 14.0
_SERIES: Final = ("", " second", " third", " fourth", " fifth", " sixth")


def _picture(title: str, said: str, width: float, height: float, *body: Markup) -> Picture:
    """A picture of this size below its heading."""
    words = cut(title, _LONGEST_TITLE)
    parts = [text(words, 12, 22, "heading"), moved(0, _HEADING, *body)]
    return Picture("explanation", title, said, max(width, 9 * len(words)), height + _HEADING, parts)


def matrix(values: npt.NDArray[Any], labels: Sequence[str], title: str) -> Picture:
    """A matrix (n, n) of numbers from 0 to 1, with labels on both sides."""
    said = "Each row is a token that looks at the columns; a full shade is 1."
    if len(labels) > _MOST_LABELS:
        side = 4.0 * len(labels)
        return _picture(title, said, side + 24, side + 12, shades(values, 12, 0, side, side))
    table = CellTable(labels, _CELL, _CELL)
    cells = [
        table.cell((row, column), "right", value, f"{labels[row]} → {label}: {value:.4f}")
        for row, each in enumerate(values.tolist())
        for column, (label, value) in enumerate(zip(labels, each, strict=True))
    ]
    width, height = table.size
    box = '<rect x="{}" y="{}" width="28" height="10" class="right" fill-opacity="{}"/>'
    for at, shade in enumerate((0, 0.25, 0.5, 0.75, 1)):
        x = table.corner[0] + 28 * at
        cells += [
            element(box, x, height + 6, shade),
            text(f"{shade}", x + 14, height + 30, "tick", "middle"),
        ]
    return _picture(title, said, max(width, 300), height + 40, table.lines(), *cells)


def grid(values: npt.NDArray[Any], title: str) -> Picture:
    """Matrices (L, N, n, n), a row of N small pictures for each of L; each has its own scale."""
    rows, columns = values.shape[:2]
    step, left, top = _SMALL_SIDE + 8, 34.0, 22.0
    drawn = [
        text(f"{column + 1}", left + step * column + _SMALL_SIDE / 2, 12, "tick", "middle")
        for column in range(columns)
    ]
    for row in range(rows):
        y = top + step * row
        drawn.append(text(f"{row + 1}", left - 8, y + _SMALL_SIDE / 2 + 4, "tick", "end"))
        for column in range(columns):
            one = values[row, column] / values[row, column].max()
            # At most 128 rows: the largest value of each block.
            block = -(-len(one) // 128)
            padded = np.pad(one, (0, -len(one) % block))
            scaled = padded.reshape(len(padded) // block, block, -1, block).max((1, 3))
            place = left + step * column, y, _SMALL_SIDE, _SMALL_SIDE
            box = '<rect x="{}" y="{}" width="{}" height="{}" class="grid"/>'
            drawn += [shades(scaled, *place), element(box, *place)]
    said = "A small matrix for each head, whose rows are the tokens that look at the columns."
    return _picture(title, said, left + step * columns + 8, top + step * rows, *drawn)


def bars(labels: Sequence[str], values: npt.NDArray[Any], title: str) -> Picture:
    """A horizontal bar for each value, the first at the top; negative ones have another colour."""
    small = len(labels) > _MOST_TALL_BARS
    frame = Frame(
        *(around([0.0, *values.tolist()]), (len(labels), 0)),
        width=420 + room_for(labels, small=small),
        height=(12 if small else 20) * len(labels) + 30,
        left=room_for(labels, small=small) + 12,
        top=0,
        bottom=30,
    )
    class_ = "tick small" if small else "tick"
    drawn = [frame.axes(y_ticks=[], upright=True)]
    for at, (label, value) in enumerate(zip(labels, values.tolist(), strict=True)):
        kind = "bar below" if value < 0 else "bar"
        drawn.append(text(cut(label), frame.left - 6, frame.at_y(at + 0.5) + 4, class_, "end"))
        drawn.append(frame.bar((0, value), (at + 0.1, at + 0.9), f"{label}: {value:.4f}", kind))
    drawn.append(frame.upright(0, *frame.y, "axis"))
    said = f"{len(labels)} bars from {values.min():.4g} to {values.max():.4g}."
    return _picture(title, said, frame.width, frame.height, *drawn)


def lines(values: npt.NDArray[Any], names: Sequence[str], label: str, title: str) -> Picture:
    """(L + 1, C) values over the layers 0 to L, a line for each column."""
    legend = room_for(names) + 40 if len(names) > 1 else 22
    frame = Frame(
        *((0, len(values) - 1), around(values.ravel().tolist())),
        *(490 + legend, max(260.0, 20.0 * len(names))),
        left=64,
        right=legend,
    )
    drawn = [frame.axes("layer", label, x_ticks=range(len(values)))]
    for at, (name, column) in enumerate(zip(names, values.T.tolist(), strict=True)):
        series, y = _SERIES[at % len(_SERIES)], 16 + 18.0 * at
        drawn.append(frame.line(enumerate(column), f"line{series}"))
        for layer, value in enumerate(column):
            said = f"{name}, layer {layer}: {value:.4f}"
            drawn.append(frame.dot(layer, value, said, class_=f"dot{series}"))
        if len(names) > 1:
            x = frame.width - legend + 16
            drawn.append(element('<circle cx="{}" cy="{}" r="4" class="dot{}"/>', x, y, series))
            drawn.append(text(cut(name), x + 10, y + 4))
    said = f"The {label} over the layers: " + ", ".join(names)
    return _picture(title, said, frame.width, frame.height, *drawn)


def strips(
    values: Sequence[npt.NDArray[Any]], names: Sequence[str], labels: Sequence[str], title: str
) -> Picture:
    """Matrices (n, H) one above the other, with a row for each label; blue is positive."""
    left, high = room_for(labels, small=True) + 12, _STRIP_ROW * len(labels)
    drawn, y = [], 14.0
    for each, name in zip(values, names, strict=True):
        bound = float(np.abs(each).max()) or 1.0
        drawn.append(text(f"{name}, to ±{bound:.2g}", left, y - 6, "name"))
        drawn.append(shades(each / bound, left, y, _STRIP_WIDTH, high))
        for at, label in enumerate(labels):
            drawn.append(
                text(cut(label), left - 6, y + _STRIP_ROW * (at + 0.5) + 4, "tick small", "end")
            )
        y += high + 30
    said = "Rows are tokens and columns are dimensions: blue is positive, orange is negative."
    return _picture(title, said, left + _STRIP_WIDTH + 12, y - 14, *drawn)


def scatter(points: npt.NDArray[Any], labels: Sequence[str], title: str) -> Picture:
    """Points (n, 2) with their labels."""
    (x, y), middle = points.T.tolist(), (points[:, 0].min() + points[:, 0].max()) / 2
    frame = Frame(around(x, 0.15), around(y, 0.15), 560, 420, top=4, bottom=30)
    drawn = [frame.axes(upright=True)]
    for each, up, label in zip(x, y, labels, strict=True):
        # Towards the middle, where there is room.
        side, shift = ("end", -6) if each > middle else ("start", 6)
        drawn.append(frame.dot(each, up, label))
        drawn.append(text(cut(label, 40), frame.at_x(each) + shift, frame.at_y(up) - 5, "", side))
    said = "Points that are near each other are alike: " + ", ".join(labels)
    return _picture(title, said, frame.width, frame.height, *drawn)
