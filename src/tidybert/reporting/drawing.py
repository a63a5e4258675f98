"""Pictures in SVG, and what they are made of: texts, lines, and a frame with two axes.

Colours and widths are classes of resources/report/picture.css, which follows the reader's light or
dark mode.  A file has that style inside; a page has it once for all its pictures.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final

from markupsafe import Markup
from rich.cells import cell_len

from tidybert.reporting.markup import element
from tidybert.storage.atomic_files import atomic_write_text

Range = tuple[float, float]

_TICKS: Final = 5
_NAME_LENGTH: Final = 26
_CHARACTER, _SMALL_CHARACTER = 6.4, 5.6


@dataclass(frozen=True)
class Picture:
    """A drawing that a screen reader announces by its title and description.

    ``name`` is unique on a page.
    """

    name: str
    title: str
    description: str
    width: float
    height: float
    body: Sequence[Markup]

    @property
    def inline(self) -> Markup:
        """The element for a page that has the style of pictures."""
        return self._element(Markup(), Markup())

    @property
    def svg(self) -> str:
        """A file by itself."""
        style = element("<style>{}</style>", Markup(picture_style()))
        page = element('<rect width="{}" height="{}" class="page"/>', self.width, self.height)
        return self._element(Markup(' xmlns="http://www.w3.org/2000/svg"'), style + page)

    def save(self, path: str | Path) -> None:
        """Write the file; the name should end in .svg.  Raises DiskError where it cannot."""
        atomic_write_text(path, self.svg + "\n")

    def _repr_svg_(self) -> str:
        return self.svg

    def _element(self, namespace: Markup, first: Markup) -> Markup:
        name, size = self.name, (self.width, self.height)
        return element(
            '<svg{} class="picture" viewBox="0 0 {} {}" width="{}" height="{}" role="img" '
            'aria-labelledby="{}-title {}-description">'
            '<title id="{}-title">{}</title><desc id="{}-description">{}</desc>{}{}</svg>',
            *(namespace, *size, *size, name, name, name, self.title, name, self.description),
            *(first, Markup().join(self.body)),
        )


def picture_style() -> str:
    """The style of all pictures."""
    return (resources.files("tidybert") / "resources/report/picture.css").read_text("utf-8")


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


def moved(x: float, y: float, *body: Markup) -> Markup:
    """Parts of a picture at another place."""
    return element('<g transform="translate({} {})">{}</g>', x, y, Markup().join(body))


def cut(name: str, longest: int = _NAME_LENGTH) -> str:
    """A name, or the beginning of a longer one and an ellipsis."""
    return name if len(name) <= longest else name[: longest - 1] + "…"


def room_for(names: Iterable[str], *, small: bool = False) -> float:
    """The width of the longest name, cut, and a gap."""
    longest = max((cell_len(cut(each)) for each in names), default=0)
    return longest * (_SMALL_CHARACTER if small else _CHARACTER) + 10


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
    """A rectangle whose places are named by two ranges of numbers, with room on each side.

    A range may fall.
    """

    x: Range
    y: Range
    width: float = 420.0
    height: float = 280.0
    left: float = 52.0
    right: float = 22.0
    top: float = 12.0
    bottom: float = 44.0

    def picture(self, name: str, title: str, description: str, *body: Markup) -> Markup:
        """A picture of the frame's size for a page."""
        return Picture(name, title, description, self.width, self.height, body).inline

    def at_x(self, value: float) -> float:
        """The place of a number on the x axis."""
        share = (value - self.x[0]) / (self.x[1] - self.x[0])
        return self.left + share * (self.width - self.left - self.right)

    def at_y(self, value: float) -> float:
        """The place of a number on the y axis; SVG counts from the top."""
        share = (value - self.y[0]) / (self.y[1] - self.y[0])
        return self.height - self.bottom - share * (self.height - self.top - self.bottom)

    def axes(
        self,
        x_name: str = "",
        y_name: str = "",
        *,
        x_text: Callable[[float], str] | None = short,
        y_text: Callable[[float], str] = short,
        x_ticks: Sequence[float] | None = None,
        y_ticks: Sequence[float] | None = None,
        upright: bool = False,
    ) -> Markup:
        """Grid lines, their numbers, and the names of the axes; ``upright`` lines for x, too."""
        left, right, base = self.left, self.width - self.right, self.height - self.bottom
        drawn = []
        for value in ticks(*self.y) if y_ticks is None else y_ticks:
            y = self.at_y(value)
            drawn.append(straight("grid", left, y, right, y))
            drawn.append(text(y_text(value), left - 6, y + 4, "tick", "end"))
        for value in ticks(*self.x) if x_ticks is None else x_ticks:
            x = self.at_x(value)
            if upright:
                drawn.append(straight("grid", x, self.top, x, base))
            if x_text:
                drawn.append(text(x_text(value), x, base + 17, "tick", "middle"))
        drawn.append(straight("axis", left, base, right, base))
        if x_name:
            drawn.append(text(x_name, (left + right) / 2, self.height - 6, "name", "middle"))
        if y_name:
            drawn.append(text(y_name, 11, (self.top + base) / 2, "name", "middle", upwards=True))
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

    def upright(self, x: float, low: float, high: float, class_: str = "whisker") -> Markup:
        """An upright line, for an interval."""
        return straight(class_, self.at_x(x), self.at_y(low), self.at_x(x), self.at_y(high))

    def bar(self, x: Range, y: Range, title: str, class_: str = "bar") -> Markup:
        """A rectangle between two numbers of each axis."""
        (left, right), (top, base) = sorted(map(self.at_x, x)), sorted(map(self.at_y, y))
        return element(
            '<rect class="{}" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>',
            *(class_, left, top, right - left, base - top, title),
        )
