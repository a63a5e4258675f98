"""Numbers and tables of the page."""

from collections.abc import Iterable, Sequence

from tidybert.reporting.markup import Markup, tag

Cell = str | int | float | None


def number(value: float) -> str:
    """A number with as many digits as mean something: three behind the point, or three in all."""
    if isinstance(value, int):
        return f"{value:,}"
    if value and abs(value) < 0.1:
        return f"{value:.3g}" if abs(value) < 0.01 else f"{value:.3f}"
    return f"{value:.3f}" if abs(value) < 100 else f"{value:,.0f}"


def share(value: float) -> str:
    """A share in percent."""
    return f"{100 * value:.1f} %"


def between(low: float, high: float) -> str:
    """An interval, which no line break may part."""
    return f"{number(low)} to {number(high)}".replace(" ", "\u00a0")


def table(
    headings: Sequence[str], rows: Iterable[Sequence[Cell]], *, caption: str, sortable: bool = False
) -> Markup:
    """A table; the first cell of a row heads it, numbers stand on the right.

    A sortable one can be sorted where scripts run, and filtered if it is long.
    """
    rows = list(rows)
    kinds = [_kind([row[at] for row in rows]) for at in range(len(headings))]
    head = [
        tag("th", heading, scope="col", class_=kind)
        for heading, kind in zip(headings, kinds, strict=True)
    ]
    body = [
        tag("tr", *(_cell(value, kind, first=at == 0) for at, (value, kind) in enumerate(cells)))
        for cells in (zip(row, kinds, strict=True) for row in rows)
    ]
    made = tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", *head)),
        tag("tbody", *body),
        class_="sortable" if sortable else None,
    )
    # A region that scrolls must be reachable by keyboard.
    return tag("div", made, class_="scroll", tabindex=0, role="region", aria_label=caption)


def _kind(column: Sequence[Cell]) -> str | None:
    """The class of a column's cells: of numbers, of pictures, or of neither."""
    if any(isinstance(value, int | float) for value in column):
        return "number"
    return "picture" if any(isinstance(value, Markup) for value in column) else None


def _cell(value: Cell, kind: str | None, *, first: bool) -> Markup:
    if isinstance(value, int | float):
        return tag("td", number(value), class_=kind, data_value=repr(value))
    if isinstance(value, Markup):
        return tag("td", value, class_=kind)
    if first:
        return tag("th", tag("bdi", value), scope="row")
    return tag("td", "–" if value is None else tag("bdi", value), class_=kind)


def as_table(content: Markup, summary: str = "As a table") -> Markup:
    """The alternative to a picture, folded away."""
    return tag("details", tag("summary", summary), content)
