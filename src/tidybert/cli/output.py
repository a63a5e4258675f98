"""Commands print results on stdout, and notes on stderr, also about the files they read.

--quiet leaves out the notes, and --verbose shows what the package's loggers say of its decisions.
"""

import json
import logging
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tidybert.errors import in_shell
from tidybert.storage.json_objects import plain_json
from tidybert.system.reporter import Reporter
from tidybert.system.terminal import MAX_WIDTH, printable, printable_json

_is_quiet = False


def choose_notes(*, quiet: bool, verbose: bool) -> None:
    """How much this process says on stderr from now on: errors alone, notes, or decisions too."""
    global _is_quiet
    _is_quiet = quiet
    logger = logging.getLogger("tidybert")
    logger.setLevel(logging.INFO if verbose else logging.NOTSET)
    logger.handlers = [_Decisions(logging.INFO if verbose else logging.WARNING)]


class _Decisions(logging.Handler):
    """Notes that modules give their loggers: ``_LOGGER.info("device: cpu, …")`` for --verbose."""

    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())


def is_quiet() -> bool:
    """Whether the user gave --quiet: only results and errors are shown."""
    return _is_quiet


def note(*lines: str) -> None:
    """Print lines for the person at the terminal, on stderr; --quiet leaves them out."""
    if not _is_quiet:
        complain(*lines)


SHELL: Final = Reporter(note=note, spell=in_shell)
"""Lines of text on stderr, with flags as the shell spells them."""


def say(text: str) -> None:
    """Print a paragraph for the person at the terminal, after a blank line."""
    note("\n" + textwrap.fill(text, MAX_WIDTH, subsequent_indent="   ", break_on_hyphens=False))


def complain(*lines: str) -> None:
    """Print lines on stderr that --quiet does not leave out, such as an error."""
    for line in lines:
        print(printable(in_shell(line)), file=sys.stderr, flush=True)


def print_line(text: str = "") -> None:
    """Print a line of a result for people on stdout."""
    print(printable(text))


def print_part(text: str) -> None:
    """Print a part of a line of a result on stdout at once."""
    print(printable(text), end="", flush=True)


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object as one line on stdout.

    NumPy numbers become plain numbers; a number that is not finite becomes null.
    """
    # Escapes keep the line valid where stdout is not UTF-8.
    is_utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    line = json.dumps(plain_json(value), ensure_ascii=not is_utf8, allow_nan=False)
    print(printable_json(line))


def print_table(
    columns: Mapping[str, str], rows: Iterable[Sequence[Any]], *, title: str | None = None
) -> None:
    """Print a table of at most 80 columns on stdout.

    ``columns`` maps headings to the format of their numbers, or to "" for text; None is shown as -.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = title and Text(printable(title), style="bold")
    look: Any = {"box": SIMPLE_HEAD, "pad_edge": False, "show_edge": False}
    table = Table(title=shown, title_justify="left", collapse_padding=True, **look)
    for heading, form in columns.items():
        justify: Any = "right" if form else "left"
        table.add_column(Text(printable(heading)), justify=justify, overflow="fold")
    for row in rows:
        cells = zip(row, columns.values(), strict=True)
        table.add_row(*(Text(printable(_cell(value, form))) for value, form in cells))
    console = Console()
    console.print(table, width=min(console.width, MAX_WIDTH))


def _cell(value: Any, form: str) -> str:
    return "-" if value is None else value if isinstance(value, str) else format(value, form)
