"""Progress on stderr: a bar, or a line now and then where stderr is not a terminal."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

from tidybert.cli.output import is_quiet, note
from tidybert.errors import TidyBertError, in_shell
from tidybert.storage.output_lock import output_lock
from tidybert.system.cores import load_note
from tidybert.system.reporter import Reporter
from tidybert.system.terminal import Pace, clock, terminal_bar

if TYPE_CHECKING:
    from tidybert.corpus.documents import CorpusReport, Document
    from tidybert.training.reports import StepReport
    from tidybert.training.trackers import Track

LINE_SECONDS: Final = 30.0
_TICKS: Final = 6


@contextmanager
def shown_progress(title: str) -> Iterator[Pace]:
    """Gives what shows a work's progress, its figures and the time left.

    Where stderr is not a terminal, a line comes every LINE_SECONDS, also while nothing is done.
    --quiet shows nothing.
    """
    if is_quiet():
        yield Pace(lambda _done, _total, _text: None, LINE_SECONDS)
        return
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_terminal:
        with terminal_bar(title, console) as pace:
            yield pace
        return
    pace = Pace(lambda _done, _total, text: note(f"{title}: {text}"), LINE_SECONDS, ends=False)
    ended = Event()
    # Without memory for a thread the work may still be done.
    with suppress(RuntimeError):
        Thread(target=_say_that_it_lasts, args=[title, pace, ended], daemon=True).start()
    try:
        yield pace
    finally:
        ended.set()


def _say_that_it_lasts(title: str, pace: Pace, ended: Event) -> None:
    """Print the latest figures again after half a minute without a line.

    So a log shows that the work goes on.
    """
    tick = LINE_SECONDS / _TICKS
    seen, ticks = pace.last, 0
    while not ended.wait(tick):
        seen, ticks = pace.last, ticks + 1 if pace.last == seen else 0
        # A tick early, so that a line that came between two ticks is followed in time.
        if not ticks or ticks % (_TICKS - 1):
            continue
        if pace.latest[0] > pace.last:
            pace.say()
        else:
            note(f"{title}: {pace.text}; at work on this for {clock(ticks * tick)}")


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
    with shown_progress(title) as pace:
        yield pace.of_texts(total)


@contextmanager
def shown_finetuning(
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
            if last is None:
                note(f"step {step}: {metric} {values[metric]:.4f} on dev, before any training")
                return
            rate = examples / seconds
            left = (last.num_steps - step) * batch_size / rate
            note(
                f"step {step} of {last.num_steps}: loss {last.loss:.4f}, {metric} "
                f"{values[metric]:.4f} on dev; {rate:.1f} examples/s, {clock(left)} left"
            )

        yield Reporter(note, in_shell, stage=show.stage, step=step, metrics=metrics, track=track)


# Of an evaluation's metrics, in this order.
_SHOWN: Final = (
    "mlm_loss", "lm_loss", "mlm_accuracy", "lm_accuracy", "perplexity", "nsp_accuracy", "probe",
)  # fmt: skip


@contextmanager
def shown_pretraining(run: Path, track: "Track | None") -> "Iterator[Reporter]":
    """Reporter of a pre-training: a line every half minute on stderr, and the curves."""
    from tidybert.training.runs.provenance import measured_text

    if busy := load_note():
        note(busy)
    steps, tokens, seconds, last, is_first = 0, 0, 0.0, 0.0, True

    def step(done: "StepReport") -> None:
        nonlocal steps, tokens, seconds, last, is_first
        steps, tokens, seconds = steps + 1, tokens + done.num_tokens, seconds + done.seconds
        if not done.updated:
            note(
                f"step {done.step}: the loss is {done.loss} and the gradient norm "
                f"{done.gradient_norm}; nothing was updated"
            )
        if seconds - last < LINE_SECONDS and not is_first and done.step < done.num_steps:
            return
        last = seconds
        left = (done.num_steps - done.step) * seconds / steps
        parts = ", ".join(
            f"{name} {each:.3f} ({done.accuracies[name]:.1%})" for name, each in done.losses.items()
        )
        mfu = done.figures["mfu"]
        reached = "" if mfu is None else f" ({mfu:.0%} of the peak)"
        note(
            f"step {done.step:,} of {done.num_steps:,}: {parts}, rate {done.learning_rate:.1e}, "
            f"norm {done.gradient_norm:.2f}; {tokens / seconds:,.0f} tokens/s{reached}, "
            f"{clock(left)} left"
        )
        if is_first:
            # The first step also prepares a GPU, so the rate is that of the others.
            steps, tokens, seconds, last, is_first = 0, 0, 0.0, 0.0, False

    def metrics(step: int, values: dict[str, Any]) -> None:
        names = [name for shown in _SHOWN for name in values if metric_kind(name) == shown]
        shown = ", ".join(f"{name} {values[name]:.4f}" for name in names)
        note(f"step {step:,}, {measured_text(run)}: {shown}")
        draw_curves(run)

    yield Reporter(note=note, spell=in_shell, step=step, metrics=metrics, track=track)


def metric_kind(metric: str) -> str:
    """The name of a metric, whichever corpus, length or probe it is of."""
    return "probe" if metric.startswith("probe_") else metric.partition("/")[0]


def draw_curves(run: Path) -> bool:
    """Draw RUN/curves.svg; returns False, with a note, if it cannot be written."""
    from tidybert.reporting.pretraining_curves import write_curves

    try:
        # A kill then leaves the lock of the RUN, which every command on it looks for.
        with output_lock(run):
            write_curves(run)
    except TidyBertError as error:
        note(error.message)
        return False
    return True
