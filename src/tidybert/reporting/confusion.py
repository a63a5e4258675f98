"""The confusion matrix as a picture: with its counts for few classes, as a map for many."""

from collections.abc import Sequence
from typing import Final

from tidybert.reporting.drawing import picture
from tidybert.reporting.markup import Markup, tag

MOST_CLASSES: Final = 150
_MOST_WITH_COUNTS: Final = 20
_MOST_WITH_FLAT_NAMES: Final = 6

_NAME_LENGTH: Final = 26
_CHARACTER: Final = 6.2
_SMALL_CHARACTER: Final = 5.4
_DARK: Final = 0.6


def confusion_picture(names: Sequence[str], matrix: Sequence[Sequence[int]]) -> Markup:
    """A row a true class, a column a predicted one; the stronger, the larger its share of the row.

    Names that are long are cut; each cell tells its classes in full under the pointer.
    """
    shown = [
        name if len(name) <= _NAME_LENGTH else name[: _NAME_LENGTH - 1] + "…" for name in names
    ]
    counts = len(names) <= _MOST_WITH_COUNTS
    longest = max(map(len, shown)) * (_CHARACTER if counts else _SMALL_CHARACTER) + 10
    flat = len(names) <= _MOST_WITH_FLAT_NAMES
    wide, high = (max(84.0, longest) if flat else 38.0, 34.0) if counts else (11.0, 11.0)
    left, top = longest + 26, 40.0 if flat else longest + 22
    width, height = left + wide * len(names) + 8, top + high * len(names) + 8
    drawn: list[Markup] = [
        tag("text", "predicted", x=left, y=12, class_="name"),
        tag(
            "text",
            "true",
            transform=f"translate(12 {top:g}) rotate(-90)",
            text_anchor="end",
            class_="name",
        ),
        _grid(left, top, wide, high, len(names)),
    ]
    small = "tick" if counts else "tick small"
    for at, name in enumerate(shown):
        y = top + high * (at + 0.5) + 4
        drawn.append(tag("text", name, x=left - 6, y=y, text_anchor="end", class_=small))
        x = left + wide * (at + 0.5)
        if flat:
            drawn.append(tag("text", name, x=x, y=top - 8, text_anchor="middle", class_=small))
        else:
            turned = f"translate({x + 4:g} {top - 6:g}) rotate(-90)"
            drawn.append(tag("text", name, transform=turned, class_=small))
    for row, line in enumerate(matrix):
        support = sum(line) or 1
        for column, count in enumerate(line):
            if count:
                x, y = left + wide * column, top + high * row
                drawn.append(
                    _cell(x, y, wide, high, count, count / support, names, (row, column), counts)
                )
    return picture(
        "confusion",
        "Confusion matrix",
        "Rows are true classes and columns predicted ones; the diagonal is right. The tables "
        "below have the same counts.",
        width,
        height,
        *drawn,
    )


def _cell(
    x: float,
    y: float,
    width: float,
    height: float,
    count: int,
    share: float,
    names: Sequence[str],
    place: tuple[int, int],
    with_count: bool,
) -> Markup:
    true, predicted = names[place[0]], names[place[1]]
    right = place[0] == place[1]
    # The root lets a share of a hundredth be seen beside one of nine tenths.
    opacity = share**0.5
    hover = f"{true}: {count:,} ({100 * share:.1f} %) "
    hover += "right" if right else f"taken for {predicted}"
    inside = "on" if opacity > _DARK else "off"
    text = tag(
        "text",
        f"{count:,}",
        x=x + width / 2,
        y=y + height / 2 + 4,
        text_anchor="middle",
        class_=f"count {inside}",
    )
    return tag(
        "g",
        tag("title", hover),
        tag(
            "rect",
            x=x,
            y=y,
            width=width,
            height=height,
            class_="right" if right else "wrong",
            fill_opacity=opacity,
        ),
        text if with_count else None,
    )


def _grid(left: float, top: float, wide: float, high: float, count: int) -> Markup:
    right, bottom = left + wide * count, top + high * count
    rows = "".join(f"M{left:g} {top + high * at:g}H{right:g}" for at in range(count + 1))
    columns = "".join(f"M{left + wide * at:g} {top:g}V{bottom:g}" for at in range(count + 1))
    return tag("path", d=rows + columns, class_="grid")
