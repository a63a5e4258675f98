"""What commands print: results on stdout, notes and progress on stderr."""

import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from tidybert.errors import in_shell
from tidybert.json_objects import plain_json

if TYPE_CHECKING:
    from rich.progress import Progress

MAX_WIDTH: Final = 80


def note(*lines: str) -> None:
    """Print lines for the person at the terminal, on stderr.

    Where the reader of stderr has gone, work goes on without them.
    """
    try:
        for line in lines:
            print(in_shell(line), file=sys.stderr, flush=True)
    except BrokenPipeError:
        # Python would try to print the rest of the buffer at each further line, and fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def clock(seconds: float) -> str:
    """A time that is left or was taken: 2:05 is minutes and seconds, 1:02:05 has hours too."""
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object as one line on stdout.

    NumPy numbers become plain numbers; a number that is not finite becomes null.
    """
    # Escapes keep the line valid where stdout is not UTF-8.
    is_utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    print(json.dumps(plain_json(value), ensure_ascii=not is_utf8, allow_nan=False))


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
        title=title and Text(title, style="bold"),
        title_justify="left",
    )
    for heading, align in columns.items():
        table.add_column(Text(heading), justify=align, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console()
    console.print(table, width=min(console.width, MAX_WIDTH))


def training_progress() -> "Progress":
    """A progress bar on stderr that counts examples; silent where stderr is not a terminal.

    It shows what is done, the last loss, examples a second and the time left::

        with training_progress() as progress:
            bar = progress.add_task("training", total=num_examples)
            progress.update(bar, advance=32, loss=0.41)
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class LossColumn(ProgressColumn):
        def render(self, task: Task) -> Text:
            loss = task.fields.get("loss")
            return Text("" if loss is None else f"loss {loss:.4f}")

    class RateColumn(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:.1f}/s")

    console = Console(stderr=True)
    console.width = min(console.width, MAX_WIDTH)
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        LossColumn(),
        RateColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
        console=console,
        disable=not console.is_terminal,
        expand=True,
    )
