"""How a result shows itself: one line, a table in a terminal, a table in a notebook, JSON."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
from rich.cells import cell_len

from tidybert.inference.notebooks import one_line
from tidybert.storage.json_objects import plain_json
from tidybert.system.terminal_text import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float32]
# Red, green and blue of more and of less than 0.
_MORE: Final = "33,102,172"
_LESS: Final = "178,24,43"


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
    def plot(self) -> "Figure":
        """The same as a picture of matplotlib; UsageError without matplotlib."""

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


def shaded_matrix(title: str, labels: Sequence[str], values: Floats) -> str:
    """A table (n, n) of numbers from 0 to 1 as shades, with each number where the pointer is."""
    heads = "".join(
        f'<th scope="col" style="writing-mode:vertical-rl">{_shown(each)}</th>' for each in labels
    )
    rows = []
    for label, row in zip(labels, values.tolist(), strict=True):
        cells = "".join(
            f'<td style="background:rgba({_MORE},{value:.3f})" '
            f'title="{_shown(label)} → {_shown(other)}: {value:.4f}"></td>'
            for other, value in zip(labels, row, strict=True)
        )
        rows.append(f'<tr><th scope="row">{_shown(label)}</th>{cells}</tr>')
    return (
        f"<table><caption>{_shown(title)}</caption><thead><tr><td></td>{heads}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table>"
    )


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
