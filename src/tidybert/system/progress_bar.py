"""The progress bar of Python's functions: in a notebook, or on a terminal's stderr."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any, Final
from uuid import uuid4

PAUSE: Final = 0.2
"""Seconds between two changes of the bar."""

Show = Callable[[int, int, str], None]
"""Takes what is done, the total, and words on it; changes the bar only now and then."""


@contextmanager
def progress_bar(title: str, *, wanted: bool = True) -> Iterator[Show | None]:
    """Gives a function that shows progress with the rate and the time left.

    None where no bar is wanted, or where there is neither a notebook nor a terminal.
    """
    display = notebook_display()
    if not wanted or not (display or sys.stderr.isatty()):
        yield None
    elif display:
        name = uuid4().hex

        def show(done: int, total: int, text: str, *, is_new: bool) -> None:
            content = {"text/html": _html(title, done, total, text), "text/plain": text}
            display(content, raw=True, display_id=name, update=not is_new)

        yield _now_and_then(show)
    else:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        with Progress(
            TextColumn(title, markup=False),
            BarColumn(),
            TextColumn("{task.fields[text]}", markup=False),
            console=Console(stderr=True),
        ) as bar:
            task = bar.add_task(title, total=None, text="")
            yield _now_and_then(
                lambda done, total, text, is_new: bar.update(
                    task, completed=done, total=total, text=text
                )
            )


@contextmanager
def counting_bar(title: str, total: int, *, wanted: bool) -> Iterator[Callable[[int], None]]:
    """Gives a function that takes how many of ``total`` are done, and shows it where wanted."""
    with progress_bar(title, wanted=wanted) as show:
        yield (lambda _done: None) if show is None else (lambda done: show(done, total, ""))


def notebook_display() -> Callable[..., Any] | None:
    """IPython's ``display`` in a notebook; None elsewhere."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    found: Callable[..., Any] = display
    return found


def _now_and_then(change: Callable[..., Any]) -> Show:
    """Change the bar at the first call, after each PAUSE, and at the end."""
    first: int | None = None
    begun = last = 0.0

    def show(done: int, total: int, text: str) -> None:
        nonlocal first, begun, last
        now = time.monotonic()
        is_new = first is None
        if is_new:
            first, begun = done, now
        elif now - last < PAUSE and done < total:
            return
        last = now
        words = [f"{done:,} of {total:,}"]
        if text:
            words.append(text)
        if now > begun and done > (first or 0):
            rate = (done - (first or 0)) / (now - begun)
            words += [f"{rate:.1f}/s", f"{_clock((total - done) / rate)} left"]
        change(done, total, ", ".join(words), is_new=is_new)

    return show


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"


def _html(title: str, done: int, total: int, text: str) -> str:
    return f'{escape(title)} <progress value="{done}" max="{total}"></progress> {escape(text)}'
