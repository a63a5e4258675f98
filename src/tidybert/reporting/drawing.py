"""Pictures in SVG, and what they are made of: texts, lines, and a frame with two axes.

Colours and widths are classes of resources/report/picture.css, which follows the reader's light or
dark mode.  A file has that style inside; a page has it once for all its pictures.
"""

import base64
import math
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from markupsafe import Markup
from rich.cells import cell_len

from tidybert.storage.atomic_files import atomic_write_text

# Values in HTML and SVG: escaped, with a sign in place of each character that cannot be seen.
#
# The texts of a report may come from anybody. None of them becomes an element, and none spoils the
# page around it with control characters or overrides of the reading direction.

# Tab and new line are white space. Unicode has a sign for each of the other control characters.
_SIGNS: Final = {
    **{code: 0x2400 + code for code in range(32) if code not in (0x09, 0x0A)},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
    **dict.fromkeys(
        [0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)], 0xFFFD
    ),
    **dict.fromkeys(range(0xD800, 0xE000), 0xFFFD),
    **dict.fromkeys((0xFFFE, 0xFFFF), 0xFFFD),
}


def visible(text: str) -> str:
    """The text with a sign for each control code, direction override and lone surrogate.

    >>> visible("a\\x00b")
    'a␀b'
    """
    return text.replace("\r\n", "\n").translate(_SIGNS)


def shown(value: object) -> str:
    """A value as templates write it, before it is escaped; Markup stays as it is.

    >>> shown(1.5), shown(None), shown(7)
    ('1.5', '', '7')
    """
    if isinstance(value, Markup):
        return value
    if isinstance(value, float):
        # A picture needs only hundredths of a unit.
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return "" if value is None else visible(str(value))


def element(template: str, *values: object) -> Markup:
    """A template with a value in place of each {}.

    >>> str(element("<b>{}</b>", "1 < 2"))
    '<b>1 &lt; 2</b>'
    """
    return Markup(template).format(*map(shown, values))


Range = tuple[float, float]

_TICKS: Final = 5
_NAME_LENGTH: Final = 26
_CHARACTER, _SMALL_CHARACTER = 6.4, 5.6


@dataclass(frozen=True)
class Picture:
    """A drawing that a screen reader announces; ``name`` is unique on a page."""

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
    return element('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>', *(class_, x1, y1, x2, y2))


def moved(x: float, y: float, *body: Markup) -> Markup:
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
    """A rectangle whose places are named by two ranges of numbers, one of which may fall."""

    x: Range
    y: Range
    width: float = 420.0
    height: float = 280.0
    left: float = 52.0
    right: float = 22.0
    top: float = 12.0
    bottom: float = 44.0

    def picture(self, name: str, title: str, description: str, *body: Markup) -> Markup:
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

    def within(self, key: str, body: Iterable[Markup]) -> Markup:
        """Parts that are cut at the edges of the frame; ``key`` is unique on a page."""
        left, top = self.left, self.top
        return element(
            '<clipPath id="{}"><rect x="{}" y="{}" width="{}" height="{}"/></clipPath>'
            '<g clip-path="url(#{})">{}</g>',
            *(key, left, top, self.width - self.right - left + 1),
            *(self.height - self.bottom - top, key, Markup().join(body)),
        )

    def bar(self, x: Range, y: Range, title: str, class_: str = "bar") -> Markup:
        """A rectangle between two numbers of each axis."""
        (left, right), (top, base) = sorted(map(self.at_x, x)), sorted(map(self.at_y, y))
        return element(
            '<rect class="{}" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>',
            *(class_, left, top, right - left, base - top, title),
        )


# Numbers as shades: a table of cells with names on both sides, and an image of many numbers.

# A cell with more opacity has its count in the colour of the page.
_DARK: Final = 0.6
# Red, green and blue of what is below and above 0; visible on a light page and on a dark one.
_BELOW, _ABOVE = (0xCF, 0x65, 0x2A), (0x2F, 0x82, 0xC8)


@dataclass(frozen=True)
class CellTable:
    """A square table with the same names on both sides; long names are cut.

    wide, high: of a cell.  flat: whether the upper names lie.  small: whether all names are small.
    """

    names: Sequence[str]
    wide: float
    high: float
    flat: bool = False
    small: bool = False

    @property
    def corner(self) -> tuple[float, float]:
        room = room_for(self.names, small=self.small)
        return room + 26, 40.0 if self.flat else room + 22

    @property
    def size(self) -> tuple[float, float]:
        """The width and height with the names and a margin."""
        (left, top), count = self.corner, len(self.names)
        return left + self.wide * count + 8, top + self.high * count + 8

    def lines(self) -> Markup:
        """The names, and the lines between the cells."""
        (left, top), (right, bottom) = self.corner, (each - 8 for each in self.size)
        places = range(len(self.names) + 1)
        rows = "".join(f"M{left:g} {top + self.high * at:g}H{right:g}" for at in places)
        columns = "".join(f"M{left + self.wide * at:g} {top:g}V{bottom:g}" for at in places)
        drawn = [element('<path d="{}" class="grid"/>', rows + columns)]
        class_ = "tick small" if self.small else "tick"
        for at, name in enumerate(map(cut, self.names)):
            drawn.append(text(name, left - 6, top + self.high * (at + 0.5) + 4, class_, "end"))
            x = left + self.wide * (at + 0.5)
            drawn.append(
                text(name, x, top - 8, class_, "middle")
                if self.flat
                else text(name, x + 4, top - 6, class_, upwards=True)
            )
        return Markup().join(drawn)

    def cell(
        self, place: tuple[int, int], class_: str, shade: float, title: str, words: str = ""
    ) -> Markup:
        """The cell at a row and a column, with a title for the pointer and words in it."""
        x, y = self.corner[0] + self.wide * place[1], self.corner[1] + self.high * place[0]
        middle = x + self.wide / 2, y + self.high / 2 + 4
        count = "count on" if shade > _DARK else "count"
        return element(
            '<g><title>{}</title><rect x="{}" y="{}" width="{}" height="{}" class="{}" '
            'fill-opacity="{}"/>{}</g>',
            *(title, x, y, self.wide, self.high, class_, shade),
            text(words, *middle, count, "middle") if words else None,
        )


def shades(values: npt.NDArray[Any], x: float, y: float, width: float, height: float) -> Markup:
    """Numbers (rows, columns) from -1 to 1 as an image: orange below 0, blue above, none at 0.

    It is a PNG of 8 bits with a palette (https://www.w3.org/TR/png-3/), because so many cells
    would be too many elements.
    """
    rows, columns = values.shape
    steps = np.arange(256) - 128
    palette = np.where(steps[:, None] < 0, _BELOW, _ABOVE).astype(np.uint8)
    opacity = (2 * np.abs(steps)).clip(0, 255).astype(np.uint8)
    pixels = np.rint(128 + 127 * values.clip(-1, 1)).astype(np.uint8)
    # Each row begins with the number of its filter, and 0 is none.
    lines = np.pad(pixels, ((0, 0), (1, 0)))
    parts = {
        b"IHDR": struct.pack(">IIBBBBB", columns, rows, 8, 3, 0, 0, 0),
        b"PLTE": palette.tobytes(),
        b"tRNS": opacity.tobytes(),
        b"IDAT": zlib.compress(lines.tobytes(), 9),
        b"IEND": b"",
    }
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts.items()
    )
    return element(
        '<image x="{}" y="{}" width="{}" height="{}" preserveAspectRatio="none" '
        'image-rendering="pixelated" href="data:image/png;base64,{}"/>',
        *(x, y, width, height, base64.b64encode(png).decode()),
    )
