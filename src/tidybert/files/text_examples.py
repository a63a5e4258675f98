"""TextExample: what a row of a file of labelled texts holds."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TextExample:
    """One text or pair of texts, its label where the file has one, and its 1-based line there.

    ``labels`` are those of a text that may have any number of them, read with ``multi_label``;
    ``columns`` are the other columns of the row, read with ``keep_columns``.
    """

    text: str
    text_pair: str | None
    label: str | None
    row: int
    labels: tuple[str, ...] | None = None
    columns: Mapping[str, object] | None = field(default=None, repr=False, compare=False)
