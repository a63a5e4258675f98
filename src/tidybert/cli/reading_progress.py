"""How much of a corpus is read, at the terminal: a bar, or a line now and then."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidybert.cli.output import MAX_WIDTH, clock, note

if TYPE_CHECKING:
    from tidybert.corpus.documents import CorpusReport, Document

LINE_SECONDS: Final = 30.0
BAR_SECONDS: Final = 0.2


@dataclass(frozen=True)
class Share:
    """``read`` of ``total`` bytes are read, ``new`` of them by this process."""

    read: int
    total: int
    new: int
    figures: str


Show = Callable[[Callable[[float], Share]], None]
"""Takes a function from the seconds passed to the share, and calls it only now and then."""


@contextmanager
def shown_share(title: str) -> Iterator[Show]:
    """Gives a function that shows on stderr how much of a corpus is read, and the time left.

    Where stderr is not a terminal, it shows a line every half minute.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(stderr=True)
    console.width = min(console.width, MAX_WIDTH)
    begun = told = time.monotonic()
    pause = BAR_SECONDS if console.is_terminal else LINE_SECONDS
    with Progress(
        TextColumn(title, markup=False),
        BarColumn(bar_width=None),
        TextColumn("{task.percentage:.0f}% {task.fields[figures]}", markup=False),
        console=console,
        disable=not console.is_terminal,
        expand=True,
    ) as bar:
        shown = bar.add_task(title, total=None, figures="")

        def show(look: Callable[[float], Share]) -> None:
            nonlocal told
            now = time.monotonic()
            if now - told < pause:
                return
            told = now
            share = look(now - begun)
            figures = share.figures
            if share.new:
                left = (share.total - share.read) * (now - begun) / share.new
                figures += f", {clock(left)} left"
            bar.update(shown, completed=share.read, total=share.total, figures=figures)
            if not console.is_terminal:
                note(f"{share.read / share.total:.0%} read: {figures}")

        yield show


@contextmanager
def shown_reading(
    report: "CorpusReport",
) -> "Iterator[Callable[[Iterable[Document]], Iterator[Document]]]":
    """Gives a function that hands documents on, and shows on stderr how many are read."""

    def look(seconds: float) -> Share:
        millions, read = report.num_characters / 1e6, report.bytes_read()
        figures = f"{millions:,.1f} M characters, {millions / seconds:.1f} M/s"
        return Share(read, report.total_bytes, read, figures)

    with shown_share("reading") as show:

        def follow(documents: "Iterable[Document]") -> "Iterator[Document]":
            for document in documents:
                yield document
                show(look)

        yield follow
