"""TextExample: what a row of a file of labelled texts holds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TextExample:
    """One text or pair of texts, its label where the file has one, and its 1-based line there.

    ``labels`` are those of a text that may have any number of them, read with ``multi_label``.
    """

    text: str
    text_pair: str | None
    label: str | None
    row: int
    labels: tuple[str, ...] | None = None
