"""The parts of a picture in SVG: texts, lines, and a frame with two axes.

Colours and widths are classes of report.css, so a picture follows the light or dark page.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter
from typing import Final

from markupsafe import Markup

from tidybert.reporting.markup import element

Range = tuple[float, float]
Points = list[tuple[float, float]]

_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 22.0, 12.0, 44.0
_TICKS: Final = 5
# The mean over this share of the steps shows the course of a noisy loss.
_SMOOTHED_SHARE: Final = 0.05
_MAX_LINE_POINTS: Final = 400
# Only a file by itself must name its language.
_NAMESPACE: Final = Markup(' xmlns="http://www.w3.org/2000/svg"')


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
    own = Markup() if style is None else element("<style>{}</style>", Markup(style))
    return element(
        '<svg{} viewBox="0 0 {} {}" width="{}" height="{}" role="img" '
        'aria-labelledby="{}-title {}-description">'
        '<title id="{}-title">{}</title><desc id="{}-description">{}</desc>{}{}</svg>',
        *("" if style is None else _NAMESPACE, width, height, width, height, name, name),
        *(name, title, name, description, own, Markup().join(body)),
    )


def text(
    words: str,
    x: float,
    y: float,
    class_: str = "",
    anchor: str = "start",
    *,
    upwards: bool = False,
) -> Markup:
    """Words that start, end or are centred at a place."""
    turn = element(' transform="rotate(-90 {} {})"', x, y) if upwards else Markup()
    return element(
        '<text x="{}" y="{}" class="{}" text-anchor="{}"{}>{}</text>',
        *(x, y, class_, anchor, turn, words),
    )


def straight(class_: str, x1: float, y1: float, x2: float, y2: float) -> Markup:
    """A straight line from one place to another."""
    return element('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>', *(class_, x1, y1, x2, y2))


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
        return exponent(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def exponent(value: float) -> str:
    """A small number as people write it: 1e-3, 2.5e-4, 0."""
    return f"{value:.1e}".replace(".0e", "e").replace("e-0", "e-") if value else "0"


def percent(value: float) -> str:
    """A share as an axis shows it."""
    return f"{100 * value:.0f} %"


@dataclass(frozen=True)
class Frame:
    """A rectangle whose places are named by two ranges of numbers."""

    x: Range
    y: Range
    width: float = 420.0
    height: float = 280.0

    def picture(self, name: str, title: str, description: str, *body: Markup) -> Markup:
        """An SVG of the frame's size; see ``picture``."""
        return picture(name, title, description, self.width, self.height, *body)

    def at_x(self, value: float) -> float:
        """The place of a number on the x axis."""
        share = (value - self.x[0]) / (self.x[1] - self.x[0])
        return _LEFT + share * (self.width - _LEFT - _RIGHT)

    def at_y(self, value: float) -> float:
        """The place of a number on the y axis; SVG counts from the top."""
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
        left, right, base = _LEFT, self.width - _RIGHT, self.height - _BOTTOM
        drawn = []
        for value in ticks(*self.y):
            y = self.at_y(value)
            drawn.append(straight("grid", left, y, right, y))
            drawn.append(text(y_text(value), left - 6, y + 4, "tick", "end"))
        for value in ticks(*self.x) if x_ticks is None else x_ticks:
            drawn.append(text(x_text(value), self.at_x(value), base + 16, "tick", "middle"))
        drawn += [
            straight("axis", left, base, right, base),
            text(x_name, (left + right) / 2, self.height - 6, "name", "middle"),
            text(y_name, 10, (_TOP + base) / 2, "name", "middle", upwards=True),
        ]
        return Markup().join(drawn)

    def line(self, points: Iterable[tuple[float, float]], class_: str = "line") -> Markup:
        """A line through the points."""
        path = " ".join(f"{self.at_x(x):.1f},{self.at_y(y):.1f}" for x, y in points)
        return element('<polyline points="{}" class="{}"/>', path, class_)

    def dot(
        self, x: float, y: float, title: str | None, radius: float = 3.5, class_: str = "dot"
    ) -> Markup:
        """A dot, with a text that appears under the pointer."""
        hover = Markup() if title is None else element("<title>{}</title>", title)
        return element(
            '<circle cx="{}" cy="{}" r="{}" class="{}">{}</circle>',
            *(self.at_x(x), self.at_y(y), radius, class_, hover),
        )

    def whisker(self, x: float, low: float, high: float, class_: str = "whisker") -> Markup:
        """An upright line, for an interval."""
        return straight(class_, self.at_x(x), self.at_y(low), self.at_x(x), self.at_y(high))

    def bar(self, x: Range, y: float, title: str) -> Markup:
        """A bar from the lower end of the frame up to ``y``."""
        left, right, top = self.at_x(x[0]), self.at_x(x[1]), self.at_y(y)
        return element(
            '<rect class="bar" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>',
            *(left, top, right - left, self.at_y(self.y[0]) - top, title),
        )


def course_of(entries: Sequence[Mapping[str, float]], key: str) -> Points:
    """The steps at which ``key`` was logged, each with its value."""
    return [(each["step"], each[key]) for each in entries if key in each]


def smooth_course(points: Points) -> Points:
    """Each value as the mean of its neighbours.

    Near the beginning, where a loss falls fast, the neighbours are as few on both sides.
    """
    half = max(1, int(len(points) * _SMOOTHED_SHARE / 2))
    sums = [0.0, *accumulate(value for _, value in points)]
    smooth = []
    for at, (step, _) in enumerate(points):
        near = min(half, at)
        first, end = at - near, min(len(points), at + near + 1)
        smooth.append((step, (sums[end] - sums[first]) / (end - first)))
    return smooth


def thinned(points: Points) -> Points:
    """At most 400 points at equal distances, the last among them."""
    every = -(-len(points) // _MAX_LINE_POINTS)
    return points[::-every][::-1]


def extremes(points: Points) -> Points:
    """The lowest and highest point of each stretch, so that a thinned line keeps its jumps."""
    length = -(-2 * len(points) // _MAX_LINE_POINTS)
    kept = []
    for start in range(0, len(points), length):
        stretch = points[start : start + length]
        kept += sorted({min(stretch, key=itemgetter(1)), max(stretch, key=itemgetter(1))})
    return kept
