"""Commands print results on stdout, and notes on stderr, also about the files they read.

--quiet leaves out the notes, and --verbose shows what the package's loggers say of its decisions.
"""

import json
import logging
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from tidybert.errors import UsageError, in_shell
from tidybert.files.reading import ReadOptions
from tidybert.storage.json_objects import plain_json
from tidybert.system.reporter import Reporter
from tidybert.system.terminal import MAX_WIDTH, printable, printable_json

if TYPE_CHECKING:
    from tidybert.explain.explained_text import Shown
    from tidybert.files.reading import ReadReport


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
    columns: Mapping[str, Literal["left", "right"]],
    rows: Sequence[Sequence[str]],
    *,
    title: str | None = None,
) -> None:
    """Print a table of at most 80 columns on stdout; ``columns`` maps headings to alignments."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
        show_edge=False,
        title=title and Text(printable(title), style="bold"),
        title_justify="left",
    )
    for heading, align in columns.items():
        table.add_column(Text(printable(heading)), justify=align, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console = Console()
    console.print(table, width=min(console.width, MAX_WIDTH))


class RowTable:
    """A table on stdout whose rows are printed as they come, each folded to its columns' widths.

    Args:
        widths: the characters of each column, by heading.
        right: the headings of columns of numbers.
        rest: the heading of a last column, which takes the rest of 80 columns.
    """

    def __init__(self, widths: Mapping[str, int], *, right: Sequence[str], rest: str) -> None:
        from rich.console import Console

        self._widths, self._right, self._rest = widths, right, rest
        self._console = Console()
        self._is_first = True

    def add(self, *cells: str) -> None:
        """Print a row; the first one after the headings."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        table = Table(
            box=SIMPLE_HEAD,
            pad_edge=False,
            show_edge=False,
            show_header=self._is_first,
            expand=True,
        )
        for heading, width in self._widths.items():
            align: Literal["left", "right"] = "right" if heading in self._right else "left"
            table.add_column(Text(heading), justify=align, overflow="fold", width=width)
        table.add_column(Text(self._rest), overflow="fold", ratio=1)
        table.add_row(*(Text(printable(cell)) for cell in cells))
        self._is_first = False
        self._console.print(table, width=min(self._console.width, MAX_WIDTH))


def check_format(run: str, path: str, options: ReadOptions) -> None:
    """Refuse a --format that the task of RUN does not read, before its model is loaded."""
    if options.format is not None:
        from tidybert.checkpoints.model_directory import ModelDirectory
        from tidybert.inference.loading import read_finished
        from tidybert.tasks.registry import task_for

        task = task_for(read_finished(ModelDirectory.open(run)))
        task.read.formats.check(path, options.format)


def print_answers(
    answer: Callable[[Iterator[Any]], Iterator[dict[str, Any]]],
    examples: Iterator[Any],
    file: str,
    show: Callable[[dict[str, Any]], None],
) -> tuple[int, int]:
    """Show the answer to each example as soon as it comes."""
    from tidybert.inference.forward import as_it_comes

    answered = truncated = 0
    with as_it_comes(examples, file) as coming:
        for each in answer(coming):
            show(each)
            if answered == 0 or file == "-":
                sys.stdout.flush()
            answered += 1
            truncated += each.get("truncated", False)
    return answered, truncated


@contextmanager
def resumable(out: Path, resume: bool) -> Iterator[None]:
    """While ``out`` is written in parts: say what a stop leaves, and how to continue."""
    from tidybert.storage.part_file import has_part

    if resume and not has_part(out):
        note(f"no part of {out} to resume from: starting at the first text")
    try:
        yield
    except BaseException:
        if has_part(out):
            note(f"the finished part of {out} is kept; the same command with --resume continues")
        raise


def note_reading(report: "ReadReport", truncated: int, total: int, cut: str) -> None:
    """Note what the reading found, and how many of the texts were cut; ``cut`` says how."""
    note(*report.lines(str))
    if truncated:
        note(f"{truncated:,} of {total:,} {cut}")


# Pictures that a command writes: an SVG, or a page that needs no other file.

SUFFIXES: Final = (".svg", ".html")


def check_picture(flag: str, path: Path | None) -> None:
    """Raise UsageError for a file whose name ends in another way, before the work begins."""
    if path is not None and path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{flag} {path}: expected a name that ends in {' or '.join(SUFFIXES)}")


def write_picture(shown: "Shown", path: Path) -> None:
    """Write the picture of a result; a page has its table too."""
    from tidybert.storage.atomic_files import atomic_write_text

    if path.suffix.lower() == ".html":
        atomic_write_text(path, shown.page())
    else:
        shown.plot().save(path)
    note(f"{path}: written")
