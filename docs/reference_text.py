"""Markdown of the reference's pages."""

import inspect
import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
WIDE: Final = ("---", "hide: [toc]", "---", "")
"""Before a page of wide tables: without a table of contents beside it."""


def paragraphs(text: str) -> list[str]:
    return [each for each in inspect.cleandoc(text).split("\n\n") if each]


def plain(text: str) -> str:
    """A text with flags and ``code`` as code, and all other marks as characters."""
    pieces = re.split(r"(``[^`]+``|(?<![\w-])--[a-z][\w-]*)", " ".join(text.split()))
    return "".join(
        code(each.strip("`")) if each.startswith(("``", "--")) else escaped(each) for each in pieces
    )


def escaped(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|{}#])", r"\\\1", text)


def code(text: object) -> str:
    """Code, also within a cell of a table."""
    shown = str(text).replace("|", "\\|")
    return f"`` {shown} ``" if "`" in shown else f"`{shown}`"


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    """A table without the columns that are empty in all rows, and an empty line."""
    used = [at for at in range(len(header)) if not at or any(row[at] for row in rows)]
    lines = [[header[at] for at in used], ["---"] * len(used)]
    lines += [[row[at] for at in used] for row in rows]
    return [*(f"| {' | '.join(line)} |" for line in lines), ""]
