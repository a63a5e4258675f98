"""The means to draw: a frame with two axes, and what stands in it, as SVG.

Colours and lines are classes of report.css, so that a picture follows the reader's light or dark
page and the printer's white one.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tidybert.reporting.markup import Markup, join, tag

Range = tuple[float, float]

_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 22.0, 12.0, 44.0
_TICKS: Final = 5
_NAMESPACE: Final = "http://www.w3.org/2000/svg"


def picture(
    name: str,
    title: str,
    description: str,
    width: float,
    height: float,
    *body: Markup,
    style: str | None = None,
) -> Markup:
    """An SVG that a screen reader announces; ``name`` is unique on the page.

    With a ``style`` of its own it can be a file by itself.
    """
    return tag(
        "svg",
        tag("title", title, id=f"{name}-title"),
        tag("desc", description, id=f"{name}-description"),
        None if style is None else tag("style", Markup(style)),
        *body,
        xmlns=None if style is None else _NAMESPACE,
        viewBox=f"0 0 {width:g} {height:g}",
        width=width,
        height=height,
        role="img",
        aria_labelledby=f"{name}-title {name}-description",
    )


def ticks(low: float, high: float, count: int = _TICKS) -> list[float]:
    """Round numbers from ``low`` to ``high``, about ``count`` of them, 1, 2 or 5 apart.

    >>> ticks(0, 1)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * unit for unit in (1, 2, 5, 10) if power * unit >= 0.75 * rough)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [at * step for at in range(first, last + 1)]


def around(values: Iterable[float], margin: float = 0.05) -> Range:
    """A range that holds the values with some room; never empty."""
    kept = list(values)
    low, high = min(kept), max(kept)
    room = (high - low) * margin or abs(high) * margin or 1.0
    return low - room, high + room


def short(value: float) -> str:
    """A number as an axis shows it."""
    if value and abs(value) < 1e-3:
        return f"{value:.1e}".replace(".0e", "e").replace("e-0", "e-")
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def percent(value: float) -> str:
    return f"{100 * value:.0f} %"


@dataclass(frozen=True)
class Frame:
    """A rectangle whose places are named by two ranges of numbers."""

    x: Range
    y: Range
    width: float = 420.0
    height: float = 280.0

    def at_x(self, value: float) -> float:
        share = (value - self.x[0]) / (self.x[1] - self.x[0])
        return _LEFT + share * (self.width - _LEFT - _RIGHT)

    def at_y(self, value: float) -> float:
        share = (value - self.y[0]) / (self.y[1] - self.y[0])
        return self.height - _BOTTOM - share * (self.height - _TOP - _BOTTOM)

    def axes(
        self,
        x_name: str,
        y_name: str,
        *,
        x_text: Callable[[float], str] = short,
        y_text: Callable[[float], str] = short,
        x_ticks: Sequence[float] | None = None,
    ) -> Markup:
        """Grid lines, their numbers, and the names of the axes."""
        left, right = _LEFT, self.width - _RIGHT
        base = self.height - _BOTTOM
        drawn = []
        for value in ticks(*self.y):
            y = self.at_y(value)
            drawn.append(tag("line", class_="grid", x1=left, x2=right, y1=y, y2=y))
            drawn.append(
                tag("text", y_text(value), x=left - 6, y=y + 4, text_anchor="end", class_="tick")
            )
        for value in ticks(*self.x) if x_ticks is None else x_ticks:
            drawn.append(
                tag(
                    "text",
                    x_text(value),
                    x=self.at_x(value),
                    y=base + 16,
                    text_anchor="middle",
                    class_="tick",
                )
            )
        drawn.append(tag("line", class_="axis", x1=left, x2=right, y1=base, y2=base))
        middle = (left + right) / 2
        drawn.append(
            tag("text", x_name, x=middle, y=self.height - 6, text_anchor="middle", class_="name")
        )
        drawn.append(
            tag(
                "text",
                y_name,
                transform=f"translate(12 {(_TOP + base) / 2:g}) rotate(-90)",
                text_anchor="middle",
                class_="name",
            )
        )
        return join(drawn)

    def line(self, points: Iterable[tuple[float, float]], class_: str = "line") -> Markup:
        """A line through the points."""
        path = " ".join(f"{self.at_x(x):.1f},{self.at_y(y):.1f}" for x, y in points)
        return tag("polyline", points=path, class_=class_)

    def dot(
        self, x: float, y: float, title: str | None, radius: float = 3.5, class_: str = "dot"
    ) -> Markup:
        """A dot, with a text that appears under the pointer."""
        hover = None if title is None else tag("title", title)
        return tag("circle", hover, cx=self.at_x(x), cy=self.at_y(y), r=radius, class_=class_)

    def whisker(self, x: float, low: float, high: float) -> Markup:
        """An upright line, for an interval."""
        place = self.at_x(x)
        return tag(
            "line", x1=place, x2=place, y1=self.at_y(low), y2=self.at_y(high), class_="whisker"
        )

    def bar(self, x: Range, y: float, title: str, class_: str = "bar") -> Markup:
        """A bar from the lower end of the frame up to ``y``."""
        left, right, top = self.at_x(x[0]), self.at_x(x[1]), self.at_y(y)
        return tag(
            "rect",
            tag("title", title),
            x=left,
            y=top,
            width=right - left,
            height=self.at_y(self.y[0]) - top,
            class_=class_,
        )
