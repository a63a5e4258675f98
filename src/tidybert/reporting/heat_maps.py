"""Numbers as shades: a table of cells with names on both sides, and an image of many numbers."""

import base64
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from tidybert.reporting.drawing import cut, room_for, text
from tidybert.reporting.markup import element

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
        """Where the first cell begins."""
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
