"""Progress on stderr: a bar, or a line now and then where stderr is not a terminal."""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tidybert.cli.output import MAX_WIDTH, clock, note
from tidybert.errors import in_shell

if TYPE_CHECKING:
    from tidybert.corpus.documents import CorpusReport, Document
    from tidybert.finetuning import Callbacks
    from tidybert.training.trainer import StepReport

LINE_SECONDS: Final = 30.0
BAR_SECONDS: Final = 0.2

Figures = Callable[[float, float], str]
"""From the seconds that have passed and the rate of what is done to a text."""
Show = Callable[[int, int | None, Figures], None]
"""Takes what is done, the total (None: unknown) and the figures; shows them only now and then."""


@contextmanager
def shown_progress(title: str, line_seconds: float = math.inf) -> Iterator[Show]:
    """Gives a function that shows a work's progress, its figures and the time left.

    Where stderr is not a terminal, it prints a line every ``line_seconds``.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(stderr=True)
    console.width = min(console.width, MAX_WIDTH)
    is_terminal = console.is_terminal
    pause = BAR_SECONDS if is_terminal else line_seconds
    begun = last = 0.0
    first: int | None = None
    with Progress(
        TextColumn(title, markup=False),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[text]}", markup=False),
        console=console,
        disable=not is_terminal,
        expand=True,
    ) as bar:
        task = bar.add_task(title, total=None, text="")

        def show(done: int, total: int | None, figures: Figures) -> None:
            nonlocal begun, last, first
            now = time.monotonic()
            if first is None:
                # What an earlier run has done says nothing about this one's speed.
                first, begun, last = done, now, now
            is_end = is_terminal and done == total
            if now == begun or (now - last < pause and not is_end):
                return
            last, rate = now, (done - first) / (now - begun)
            text = figures(now - begun, rate)
            if total is not None:
                text = f"{done / total:.0%}, {text}"
                if rate:
                    text += f", {clock((total - done) / rate)} left"
            bar.update(task, completed=done, total=total, text=text)
            if not is_terminal:
                note(f"{title}: {text}")

        yield show


@contextmanager
def shown_reading(
    report: "CorpusReport",
) -> "Iterator[Callable[[Iterable[Document]], Iterator[Document]]]":
    """Gives a function that hands a corpus's documents on, and shows how much is read."""

    def figures(seconds: float, _rate: float) -> str:
        millions = report.num_characters / 1e6
        return f"{millions:,.1f} M characters, {millions / seconds:.1f} M/s"

    with shown_progress("reading", LINE_SECONDS) as show:

        def follow(documents: "Iterable[Document]") -> "Iterator[Document]":
            for document in documents:
                yield document
                show(report.bytes_read(), report.total_bytes, figures)

        yield follow


@contextmanager
def shown_training(metric: str, train_batch_size: int) -> "Iterator[Callbacks]":
    """Callbacks for ``finetune`` that show a bar for the steps, and a line for each evaluation.

    Each evaluation's line shows ``metric`` on dev.  It repeats the bar's figures, because not every
    stderr has a bar.
    """
    from tidybert.finetuning import Callbacks

    with shown_progress("training") as show:
        last: StepReport | None = None
        examples, seconds = 0, 0.0

        def step(done: "StepReport") -> None:
            nonlocal last, examples, seconds
            last, examples, seconds = done, examples + done.num_examples, seconds + done.seconds
            seen, total = done.step * train_batch_size, done.num_steps * train_batch_size
            show(
                seen,
                total,
                lambda _, rate: f"loss {done.loss:.4f}, {seen:,} of {total:,}, {rate:.1f}/s",
            )

        def metrics(step: int, values: dict[str, Any]) -> None:
            assert last is not None
            rate = examples / seconds
            left = (last.num_steps - step) * train_batch_size / rate
            note(
                f"step {step} of {last.num_steps}: loss {last.loss:.4f}, {metric} "
                f"{values[metric]:.4f} on dev; {rate:.1f} examples/s, {clock(left)} left"
            )

        yield Callbacks(note=note, spell=in_shell, step=step, metrics=metrics)
