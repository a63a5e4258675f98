"""Pictures by matplotlib, which the extra ``plots`` installs; nothing here needs a display."""

import io
import warnings
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from tidybert.errors import UsageError
from tidybert.system.terminal_text import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS: Final = "Blues"
_CELL_INCHES: Final = 0.28
_SMALL_INCHES: Final = 0.9
_MOST_LABELS: Final = 80
_MOST_TALL_BARS: Final = 30


def _figure(width: float, height: float) -> "Figure":
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError(
            "pictures need matplotlib: install it with pip install 'tidybert[plots]'"
        ) from error
    return Figure(figsize=(width, height), layout="constrained")


def _plain(texts: Sequence[str]) -> list[str]:
    # A dollar begins a formula.
    return [printable(each).replace("$", r"\$") for each in texts]


def matrix(values: npt.NDArray[Any], labels: Sequence[str], title: str) -> "Figure":
    """A matrix (n, n) of numbers from 0 to 1, with labels on both sides."""
    side = 1.6 + _CELL_INCHES * min(len(labels), _MOST_LABELS)
    figure = _figure(side + 0.6, side)
    axes = figure.add_subplot()
    image = axes.imshow(values, cmap=_COLOURS, vmin=0, vmax=1)
    if len(labels) <= _MOST_LABELS:
        axes.set_xticks(range(len(labels)), _plain(labels), rotation=90)
        axes.set_yticks(range(len(labels)), _plain(labels))
    axes.set_title(title, fontsize=10)
    figure.colorbar(image, ax=axes, fraction=0.04)
    return figure


def grid(values: npt.NDArray[Any], title: str) -> "Figure":
    """Matrices (L, N, n, n), a row of N small pictures for each of L; each has its own scale."""
    rows, columns = values.shape[:2]
    figure = _figure(0.6 + _SMALL_INCHES * columns, 0.8 + _SMALL_INCHES * rows)
    axes = figure.subplots(rows, columns, squeeze=False)
    for (row, column), each in np.ndenumerate(axes):
        each.imshow(values[row, column], cmap=_COLOURS, vmin=0)
        each.set_xticks([])
        each.set_yticks([])
        if column == 0:
            each.set_ylabel(f"{row + 1}", rotation=0, labelpad=10, va="center", fontsize=9)
        if row == 0:
            each.set_title(f"{column + 1}", fontsize=9)
    figure.suptitle(title, fontsize=10)
    return figure


def bars(labels: Sequence[str], values: npt.NDArray[Any], title: str) -> "Figure":
    """A horizontal bar for each value, the first at the top; negative ones have another colour."""
    figure = _figure(6, 1 + (0.22 if len(labels) <= _MOST_TALL_BARS else 0.13) * len(labels))
    axes = figure.add_subplot()
    places = range(len(labels))
    colours = ["#b2182b" if each < 0 else "#2166ac" for each in values]
    axes.barh(places, values, color=colours)
    size = 9 if len(labels) <= _MOST_TALL_BARS else 6
    axes.set_yticks(places, _plain(labels), fontsize=size)
    axes.invert_yaxis()
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_title(title, fontsize=10)
    return figure


def lines(values: npt.NDArray[Any], names: Sequence[str], label: str, title: str) -> "Figure":
    """(L + 1, C) values over the layers 0 to L, a line for each column."""
    figure = _figure(6, 3.6)
    axes = figure.add_subplot()
    for column, name in zip(values.T, _plain(names), strict=True):
        axes.plot(range(len(column)), column, marker="o", label=name)
    axes.set_xticks(range(len(values)))
    axes.set_xlabel("layer")
    axes.set_ylabel(label)
    axes.set_title(title, fontsize=10)
    if len(names) > 1:
        axes.legend(fontsize=8)
    return figure


def strips(values: Sequence[npt.NDArray[Any]], names: Sequence[str], labels: Sequence[str],
           title: str) -> "Figure":  # fmt: skip
    """Matrices (n, H) one above the other, with a row for each label; blue is positive."""
    height = 0.5 + 0.2 * len(labels)
    figure = _figure(8, 0.6 + height * len(values))
    for number, (each, name) in enumerate(zip(values, names, strict=True), start=1):
        axes = figure.add_subplot(len(values), 1, number)
        bound = float(np.abs(each).max()) or 1.0
        axes.imshow(each, cmap="RdBu", vmin=-bound, vmax=bound, aspect="auto")
        axes.set_yticks(range(len(labels)), _plain(labels), fontsize=7)
        axes.set_xticks([])
        axes.set_title(f"{name}, to ±{bound:.2g}", fontsize=9)
    figure.suptitle(title, fontsize=10)
    return figure


def scatter(points: npt.NDArray[Any], labels: Sequence[str], title: str) -> "Figure":
    """Points (n, 2) with their labels."""
    figure = _figure(6, 5)
    axes = figure.add_subplot()
    axes.scatter(points[:, 0], points[:, 1], s=18)
    middle = (points[:, 0].min() + points[:, 0].max()) / 2
    for (x, y), label in zip(points, _plain(labels), strict=True):
        short = label if len(label) <= 40 else label[:39] + "…"
        # Towards the middle, where there is room.
        side, shift = ("right", -4) if x > middle else ("left", 4)
        axes.annotate(
            short, (x, y), xytext=(shift, 4), textcoords="offset points", ha=side, fontsize=8
        )
    axes.margins(0.15)
    axes.set_title(title, fontsize=10)
    return figure


def as_svg(figure: "Figure") -> str:
    """The figure as SVG, the same bytes each time, with its texts as text."""
    import matplotlib

    file = io.StringIO()
    # Texts stay texts, so a reader's fonts count: those of this machine may lack a script.
    with (
        warnings.catch_warnings(),
        matplotlib.rc_context({"svg.hashsalt": "tidybert", "svg.fonttype": "none"}),
    ):
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def as_page(title: str, texts: Sequence[str], svg: str, table: str) -> str:
    """A page that needs no other file: the texts, a picture, and the table with its numbers."""
    title = escape(printable(title))
    picture = f'<svg role="img" aria-label="{title}"{svg[svg.index("<svg") + 4 :]}'
    said = "".join(f"<blockquote>{escape(printable(each))}</blockquote>" for each in texts)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>"
        "body{font:1rem/1.5 system-ui,sans-serif;margin:1rem auto;max-width:70rem;padding:0 1rem}"
        "svg{max-width:100%;height:auto}table{border-collapse:collapse}"
        "td,th{padding:.1rem .7rem;text-align:left;border-bottom:1px solid #ccc}"
        f"</style></head><body><h1>{title}</h1>{said}{picture}{table}"
        "</body></html>\n"
    )
