"""What a terminal or a notebook shows: safe text, an object's facts, progress, warnings."""

import re
import sys
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from html import escape
from types import FrameType
from typing import Any, Final
from uuid import uuid4

from tidybert.system.reporter import SILENT, Reporter

# Text of files and users as a terminal may have it: control characters are shown, never sent.
#
# An escape sequence in a label, a token or a file's name could move the cursor, recolour the screen
# or rewrite the lines above; a bidirectional override could show a text in another order.

# All but tabs and line feeds: controls of C0 and C1, line and paragraph separators, bidirectional
# embeddings, overrides and isolates, and the surrogates of bytes that are not UTF-8.
_SENT: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""A text whose control characters are shown as Python writes them; tabs and lines stay.

    >>> printable("\x1b[31mred\x9b\u202e")
    '\\x1b[31mred\\x9b\\u202e'
    """
    return text if text.isprintable() else _SENT.sub(_python_escape, text)


def printable_json(line: str) -> str:
    r"""The same for text in JSON, with JSON's escapes: whoever reads it gets the raw characters.

    >>> printable_json('{"label": "\x7f"}')
    '{"label": "\\u007f"}'
    """
    if line.isprintable():
        return line
    return _SENT.sub(lambda found: f"\\u{ord(found[0]):04x}", line)


def _python_escape(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"


# How an object that answers shows itself: one line, or a table in a notebook.


class ShowsFacts(ABC):
    """An object that Python shows by its ``facts`` on one line, and a notebook as a table."""

    @abstractmethod
    def facts(self) -> Mapping[str, object]:
        """The model, the data that trained it and its metrics, by name."""

    def __repr__(self) -> str:
        return one_line(self, self.facts())

    def _repr_html_(self) -> str:
        return html_table(self, self.facts())


def one_line(shown: object, facts: Mapping[str, object]) -> str:
    """Predictor(run='tickets', task='classify', …), without control characters."""
    parts = ", ".join(f"{name}={value!r}" for name, value in facts.items())
    return printable(f"{type(shown).__name__}({parts})")


def html_table(shown: object, facts: Mapping[str, object]) -> str:
    """A table of two columns, with every text escaped."""
    rows = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(printable(str(value)))}</td></tr>"
        for name, value in facts.items()
    )
    return f"<table><caption>{type(shown).__name__}</caption>{rows}</table>"


# The progress bar of Python's functions: in a notebook, or on a terminal's stderr.

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
            bar = f'<progress value="{done}" max="{total}"></progress>'
            content = {
                "text/html": f"{escape(title)} {bar} {escape(text)}",
                "text/plain": text,
            }
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
def counting_bar(title: str, total: int, *, wanted: bool) -> Iterator[Reporter]:
    """Gives a reporter that shows how many of ``total`` are done, where wanted."""
    with progress_bar(title, wanted=wanted) as show:
        yield SILENT if show is None else Reporter(advance=lambda done: show(done, total, ""))


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


# Python warnings at the line of the program that called tidybert, however deep the call went.

# Programs of others that call tidybert for the user.
_BETWEEN: Final = ("tidybert", "sklearn", "joblib", "contextlib", "threading", "concurrent")


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the user's line, so that it is shown, and so that a line shows it once.

    The user's line is the first, from here outwards, that is not in tidybert, nor in scikit-learn
    or joblib, which call estimators.
    """
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)
