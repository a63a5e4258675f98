"""Reading a corpus as a person at the terminal follows it: a bar, or a line now and then."""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tidybert.cli.output import MAX_WIDTH, note

if TYPE_CHECKING:
    from tidybert.data.corpus import CorpusReport, Document

LINE_SECONDS: Final = 30.0
BAR_SECONDS: Final = 0.2


@contextmanager
def shown_reading(
    report: "CorpusReport",
) -> "Iterator[Callable[[Iterable[Document]], Iterator[Document]]]":
    """Gives a function that hands documents on, and shows on stderr how far their reading is.

    Shown are the text read, the rate and the time left; where stderr is no terminal, as a line
    every half minute.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(stderr=True)
    console.width = min(console.width, MAX_WIDTH)
    with Progress(
        TextColumn("reading", markup=False),
        BarColumn(bar_width=None),
        TextColumn("{task.percentage:.0f}% {task.fields[figures]}", markup=False),
        console=console,
        disable=not console.is_terminal,
        expand=True,
    ) as bar:
        shown = bar.add_task("reading", total=None, figures="")

        def follow(documents: "Iterable[Document]") -> "Iterator[Document]":
            begun = told = time.monotonic()
            pause = BAR_SECONDS if console.is_terminal else LINE_SECONDS
            for document in documents:
                yield document
                now = time.monotonic()
                if now - told < pause:
                    continue
                told = now
                figures = _figures(report, now - begun)
                bar.update(
                    shown,
                    completed=report.bytes_read(),
                    total=report.total_bytes,
                    figures=figures,
                )
                if not console.is_terminal:
                    note(f"{report.bytes_read() / report.total_bytes:.0%} read: {figures}")

        yield follow


def _figures(report: "CorpusReport", seconds: float) -> str:
    millions = report.num_characters / 1e6
    figures = f"{millions:,.1f} M characters, {millions / seconds:.1f} M/s"
    if done := report.bytes_read():
        left = math.ceil((report.total_bytes - done) * seconds / done)
        figures += f", {left // 60}:{left % 60:02} left"
    return figures
