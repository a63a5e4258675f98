"""Progress on stderr: a bar, or a line now and then where stderr is not a terminal."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

from tidybert.cli.output import MAX_WIDTH, clock, is_quiet, note
from tidybert.errors import in_shell
from tidybert.system.cores import load_note
from tidybert.system.reporter import Reporter

if TYPE_CHECKING:
    from rich.progress import Progress

    from tidybert.corpus.documents import CorpusReport, Document
    from tidybert.training.reports import StepReport
    from tidybert.training.trackers import Track

LINE_SECONDS: Final = 30.0
BAR_SECONDS: Final = 0.2
_TICKS: Final = 6

Figures = Callable[[float, float], str]
"""From the seconds that have passed and the rate of what is done to a text."""
Show = Callable[[int, int | None, Figures], None]
"""Takes what is done, the total (None: unknown) and the figures; shows them only now and then."""


@contextmanager
def shown_progress(title: str) -> Iterator[Show]:
    """Gives a function that shows a work's progress, its figures and the time left.

    Where stderr is not a terminal, a line comes every LINE_SECONDS, also while nothing is done.
    --quiet shows nothing.
    """
    if is_quiet():
        yield lambda _done, _total, _figures: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(stderr=True)
    console.width = min(console.width, MAX_WIDTH)
    bar = Progress(
        TextColumn(title, markup=False),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[text]}", markup=False),
        console=console,
        expand=True,
    )
    # A bar that is shown nowhere would still end with an empty line.
    with bar if console.is_terminal else nullcontext():
        shown = _Shown(title, bar if console.is_terminal else None)
        ended = Event()
        if not console.is_terminal:
            # Without memory for a thread the work may still be done.
            with suppress(RuntimeError):
                Thread(target=shown.say_that_it_lasts, args=[ended], daemon=True).start()
        try:
            yield shown.show
        finally:
            ended.set()


class _Shown:
    """A work's progress in a bar, or as lines where there is none."""

    def __init__(self, title: str, bar: "Progress | None") -> None:
        self.title, self.bar = title, bar
        self.pause = BAR_SECONDS if bar else LINE_SECONDS
        if bar:
            self.task = bar.add_task(title, total=None, text="")
        self.begun = self.last = 0.0
        self.first: int | None = None
        self.text = "begun"
        self.latest: tuple[float, int, int | None, Figures] = (0.0, 0, None, lambda _, __: "")

    def show(self, done: int, total: int | None, figures: Figures) -> None:
        """See Show."""
        now = time.monotonic()
        if self.first is None or done < self.latest[1]:
            # What was done before, or in another part, says nothing about the speed.
            self.first, self.begun, self.last = done, now, now
        self.latest = now, done, total, figures
        is_end = self.bar is not None and done == total
        if now != self.begun and (now - self.last >= self.pause or is_end):
            self.say()

    def say(self) -> None:
        """Show the latest figures."""
        now, done, total, figures = self.latest
        self.last, rate = now, (done - (self.first or 0)) / (now - self.begun)
        text = figures(now - self.begun, rate)
        if total is not None:
            text = f"{done / total:.0%}, {text}"
            if rate:
                text += f", {clock((total - done) / rate)} left"
        self.text = text
        if self.bar is None:
            note(f"{self.title}: {text}")
        else:
            self.bar.update(self.task, completed=done, total=total, text=text)

    def say_that_it_lasts(self, ended: Event) -> None:
        """Say the latest figures, or that there are no others, where half a minute would be silent.

        So a log shows that the work goes on.
        """
        tick = LINE_SECONDS / _TICKS
        seen, ticks = self.last, 0
        while not ended.wait(tick):
            seen, ticks = self.last, ticks + 1 if self.last == seen else 0
            # A tick early, so that a line that came between two ticks is followed in time.
            if not ticks or ticks % (_TICKS - 1):
                continue
            if self.latest[0] > self.last:
                self.say()
            else:
                note(f"{self.title}: {self.text}; at work on this for {clock(ticks * tick)}")


@contextmanager
def shown_reading(
    report: "CorpusReport",
) -> "Iterator[Callable[[Iterable[Document]], Iterator[Document]]]":
    """Gives a function that hands a corpus's documents on, and shows how much is read."""

    def figures(seconds: float, _rate: float) -> str:
        millions = report.num_characters / 1e6
        return f"{millions:,.1f} M characters, {millions / seconds:.1f} M/s"

    with shown_progress("reading") as show:

        def follow(documents: "Iterable[Document]") -> "Iterator[Document]":
            for document in documents:
                yield document
                show(report.bytes_read(), report.total_bytes, figures)

        yield follow


@contextmanager
def shown_texts(title: str, total: int | None = None) -> Iterator[Reporter]:
    """Gives a reporter that shows how many texts are done."""
    of = "" if total is None else f" of {total:,}"
    with shown_progress(title) as show:
        yield Reporter(
            advance=lambda done: show(
                done, total, lambda _, rate: f"{done:,}{of} texts, {rate:.1f}/s"
            )
        )


@contextmanager
def shown_training(
    metric: str, batch_size: int, track: "Track | None" = None
) -> "Iterator[Reporter]":
    """Reporter of a fine-tuning: a bar for the steps, and a line for each evaluation.

    Each line shows ``metric`` on dev.  It repeats the bar's figures, because not every
    stderr has a bar.
    """

    if busy := load_note():
        note(busy)
    with shown_progress("training") as show:
        last: StepReport | None = None
        examples, seconds = 0, 0.0

        def step(done: "StepReport") -> None:
            nonlocal last, examples, seconds
            last, examples, seconds = done, examples + done.num_examples, seconds + done.seconds
            seen, total = done.step * batch_size, done.num_steps * batch_size
            show(
                seen,
                total,
                lambda _, rate: f"loss {done.loss:.4f}, {seen:,} of {total:,}, {rate:.1f}/s",
            )

        def metrics(step: int, values: dict[str, Any]) -> None:
            assert last is not None
            rate = examples / seconds
            left = (last.num_steps - step) * batch_size / rate
            note(
                f"step {step} of {last.num_steps}: loss {last.loss:.4f}, {metric} "
                f"{values[metric]:.4f} on dev; {rate:.1f} examples/s, {clock(left)} left"
            )

        def first_step(done: "StepReport") -> None:
            text = f"contrastive training, loss {done.loss:.4f}"
            show(done.step, done.num_steps, lambda _, _rate: text)

        yield Reporter(
            note, in_shell, first_step=first_step, step=step, metrics=metrics, track=track
        )
