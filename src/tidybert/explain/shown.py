"""How a result shows itself: one line, a table in a terminal, a table in a notebook, JSON."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from importlib.metadata import version
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from markupsafe import Markup
from rich.cells import cell_len

from tidybert.inference.notebooks import one_line
from tidybert.reporting.drawing import Picture
from tidybert.reporting.report_page import rendered
from tidybert.storage.json_objects import plain_json
from tidybert.system.terminal_text import printable

Floats = npt.NDArray[np.float32]
# Red, green and blue of more and of less than 0.
_MORE: Final = "47,130,200"
_LESS: Final = "207,101,42"


@dataclass(frozen=True)
class Table:
    """Rows of texts under headings; the columns named in ``left`` hold words, others numbers."""

    title: str
    headings: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    left: frozenset[str]
    note: str = ""

    def __str__(self) -> str:
        cells = [[printable(each) for each in row] for row in (self.headings, *self.rows)]
        widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
        lines = [self.title, *(self._line(row, widths) for row in cells)]
        lines.insert(2, "─" * (sum(widths) + 2 * len(widths) - 2))
        return "\n".join([*lines, *filter(None, [self.note])])

    def _line(self, row: Sequence[str], widths: Sequence[int]) -> str:
        padded = []
        for heading, cell, width in zip(self.headings, row, widths, strict=True):
            room = " " * (width - cell_len(cell))
            padded.append(cell + room if heading in self.left else room + cell)
        return "  ".join(padded).rstrip()

    def html(self, *, with_title: bool = True) -> str:
        """A table element with every text escaped."""
        title = f"<caption>{_shown(self.title)}</caption>" if with_title else ""
        heads = "".join(f'<th scope="col">{_shown(each)}</th>' for each in self.headings)
        rows = "".join(
            "<tr>" + "".join(f"<td>{_shown(each)}</td>" for each in row) + "</tr>"
            for row in self.rows
        )
        note = f"<p>{_shown(self.note)}</p>" if self.note else ""
        return f"<table>{title}<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>{note}"


class Shown(ABC):
    """The base of all results; a subclass is a dataclass."""

    @abstractmethod
    def facts(self) -> dict[str, object]:
        """What its one line says."""

    @abstractmethod
    def table(self) -> Table:
        """What a terminal and a notebook show."""

    @abstractmethod
    def plot(self) -> Picture:
        """The same as a picture, which a notebook shows and ``save`` writes as SVG."""

    @property
    def quoted(self) -> Sequence[str]:
        """The texts that its page begins with."""
        return ()

    def page(self) -> str:
        """A page that needs no other file: the texts, the picture, and the table."""
        table = self.table()
        return rendered(
            "explanation.html.j2",
            title=table.title,
            version=version("tidybert"),
            texts=self.quoted,
            picture=self.plot().inline,
            table=Markup(table.html(with_title=False)),
        )

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON can hold them; a score of minus infinity becomes None."""
        found: dict[str, Any] = plain_json(asdict(self))  # type: ignore[call-overload]
        return found

    def __repr__(self) -> str:
        return one_line(self, self.facts())

    def __str__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        return self.table().html()


def shaded_words(words: Sequence[str], values: Floats) -> str:
    """Words in a line, shaded by values of either sign, with each number where the pointer is.

    A word whose value is NaN has no shade.
    """
    shades = np.nan_to_num(values)
    shades = 0.7 * shades / max(np.abs(shades).max(initial=0), 1e-12)
    parts = [
        f'<span style="background:rgba({_LESS if shade < 0 else _MORE},{abs(shade):.3f})" '
        f'title="{signed(value)}">{_shown(word)}</span>'
        for word, shade, value in zip(words, shades.tolist(), values.tolist(), strict=True)
    ]
    return f"<p>{' '.join(parts)}</p>"


def signed(value: float) -> str:
    """The number with its sign; a dash for NaN."""
    return "–" if np.isnan(value) else f"{value:+.4f}"


def _shown(text: str) -> str:
    return escape(printable(text))


def cosine(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> Floats:
    """The cosines of vectors (…, d) with vectors (…, d); 0 where one of them is zero."""
    lengths = np.linalg.norm(first, axis=-1) * np.linalg.norm(second, axis=-1)
    products = np.sum(first * second, axis=-1)
    return np.asarray(products / np.where(lengths == 0, 1, lengths), dtype=np.float32)
