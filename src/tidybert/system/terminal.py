"""What a terminal or a notebook shows: safe text, an object's facts, progress, warnings."""

import math
import re
import sys
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from html import escape
from types import FrameType
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from tidybert.system.reporter import SILENT, Reporter

if TYPE_CHECKING:
    from rich.console import Console

# Text of files and users as a terminal may have it: control characters are shown, never sent.
#
# An escape sequence in a label, a token or a file's name could move the cursor, recolour the screen
# or rewrite the lines above; a bidirectional override could show a text in another order.

# All but tabs and line feeds: controls of C0 and C1, line and paragraph separators, bidirectional
# marks, embeddings, overrides and isolates, and the surrogates of bytes that are not UTF-8.
_SENT: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


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


# Whom stderr reaches.  A program without a console has none, or an object that only writes.


def is_terminal(stream: Any) -> bool:
    """Whether a stream is there, open, and a terminal."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False


def write_note(text: str) -> None:
    """Print lines on stderr, where there is one that is open."""
    # print would take stdout in place of None.
    if sys.stderr is not None:
        with suppress(ValueError):
            print(printable(text), file=sys.stderr)


# How far a work is: in a bar of a terminal or a notebook, or as a shell's lines.

MAX_WIDTH: Final = 80
PAUSE: Final = 0.2
"""Seconds between two changes of a bar."""

Figures = Callable[[float, float], str]
"""From the seconds that have passed and the rate of what is done to a text."""


class Pace:
    """Shows by ``change`` what is done, the total and words, once every ``pause`` seconds.

    With ``ends`` the end is shown without a pause before it.
    """

    def __init__(self, change: Callable[..., Any], pause: float, *, ends: bool = True) -> None:
        self.change, self.pause, self.ends = change, pause, ends
        self.begun = self.last = 0.0
        self.first: int | None = None
        self.text = "begun"
        self.latest: tuple[float, int, int | None, Figures] = (0.0, 0, None, lambda _, __: "")

    def __call__(self, done: int, total: int | None, figures: Figures) -> None:
        """Take what is done, the total (None: unknown) and the figures; show them at times."""
        now = time.monotonic()
        if self.first is None or done < self.latest[1]:
            # What was done before, or in another part, says nothing about the speed.
            self.first, self.begun, self.last = done, now, now
        self.latest = now, done, total, figures
        is_end = self.ends and done == total
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
        self.change(done, total, text)

    def of_texts(self, total: int | None) -> Reporter:
        """A reporter that shows how many texts are done."""
        of = "" if total is None else f" of {total:,}"

        def advance(done: int) -> None:
            self(done, total, lambda _, rate: f"{done:,}{of} texts, {rate:.1f}/s")

        return Reporter(advance=advance, stage=self.stage)

    def stage(self, name: str, done: int, total: int) -> None:
        """Show how much of a stage is done, whose name stands for its figures."""
        if not done:
            self.text = name
        self(done, total, lambda _, _rate: name)


def clock(seconds: float) -> str:
    """A time that is left or was taken: 2:05 is minutes and seconds, 1:02:05 has hours too."""
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextmanager
def terminal_bar(title: str, console: "Console") -> Iterator[Pace]:
    """Gives what shows progress in a bar of the terminal."""
    from rich.progress import BarColumn, Progress, TextColumn

    console.width = min(console.width, MAX_WIDTH)
    with Progress(
        TextColumn(title, markup=False),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[text]}", markup=False),
        console=console,
        expand=True,
    ) as bar:
        task = bar.add_task(title, total=None, text="")
        yield Pace(
            lambda done, total, text: bar.update(task, completed=done, total=total, text=text),
            PAUSE,
        )


@contextmanager
def progress_bar(title: str, *, wanted: bool = True) -> Iterator[Pace | None]:
    """Gives what shows progress in a notebook, or on a terminal's stderr.

    None where no bar is wanted, or where there is neither a notebook nor a terminal.
    """
    display = notebook_display()
    if not wanted or not (display or is_terminal(sys.stderr)):
        yield None
    elif display:
        name = uuid4().hex

        def change(done: int, total: int | None, text: str, *, update: bool = True) -> None:
            bar = f'<progress value="{done}" max="{total}"></progress>'
            html = f"{escape(title)} {bar} {escape(text)}"
            display(
                {"text/html": html, "text/plain": text}, raw=True, display_id=name, update=update
            )

        change(0, 1, "", update=False)
        yield Pace(change, PAUSE)
    else:
        from rich.console import Console

        with terminal_bar(title, Console(stderr=True)) as pace:
            yield pace


@contextmanager
def counting_bar(title: str, total: int, *, wanted: bool) -> Iterator[Reporter]:
    """Gives a reporter that shows how many of ``total`` are done, where wanted."""
    with progress_bar(title, wanted=wanted) as pace:
        reporter = SILENT if pace is None else pace.of_texts(total)
        # The rate is that of the first batch too.
        reporter.advance(0)
        yield reporter


def notebook_display() -> Callable[..., Any] | None:
    """IPython's ``display`` in a notebook; None elsewhere."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    found: Callable[..., Any] = display
    return found


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
    # A warning is no error because stderr is closed.
    with suppress(ValueError):
        warnings.warn(message, category, stacklevel=level)
