"""What reading yields: a TextExample a row, its label in one spelling, and a report."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeVar

from tidybert.errors import DataError, param
from tidybert.files.columns import ROLES
from tidybert.files.formats import Problem

E = TypeVar("E")

SHOWN_PROBLEMS: Final = 5
KEPT_PROBLEMS: Final = 1000
_LONE_SURROGATE: Final = r"a lone surrogate (half of a \ud83d\ude00 pair)"
MAX_EXACT_FLOAT: Final = 2**53  # above it a whole float may stand for several integers


@dataclass(frozen=True, slots=True)
class TextExample:
    """One text or pair of texts, its label where the file has one, and its 1-based line there.

    ``labels`` are those of a text that may have any number of them, read with ``multi_label``.
    """

    text: str
    text_pair: str | None
    label: str | None
    row: int
    labels: tuple[str, ...] | None = None


@dataclass
class ReadReport:
    """How a file was read; filled on the way, complete when reading ends."""

    path: str = ""
    format: str = ""
    columns: dict[str, str] = field(default_factory=dict)
    """Each role (text, text_pair, label) and the name or number of the column it is read from."""
    guessed: list[str] = field(default_factory=list)
    """The roles whose column no flag gave, and "format" where standard input's was guessed."""
    header: bool | None = None
    """Whether the first row named the columns; None for formats without a header."""
    num_examples: int = 0
    num_problems: int = 0
    """Rows that could not be read; with ``skip_bad_rows``, the number of rows skipped."""
    problems: list[Problem] = field(default_factory=list)
    """The first of them, at most KEPT_PROBLEMS."""
    notes: list[str] = field(default_factory=list)
    """What else was found: blank lines, rows of another width, a first row taken for data."""

    def lines(self) -> list[str]:
        """The report as plain text: columns, notes, and the rows that were skipped."""
        lines = []
        if self.columns:
            columns = ", ".join(f"{param(role)} {name}" for role, name in self.columns.items())
            guessed = " and ".join(param(name) for name in self.guessed if name in ROLES)
            lines.append(
                f"{self.path}: read as {self.format}, {columns}"
                + (f" ({guessed} guessed from the names)" if guessed else "")
            )
        lines += [f"{self.path}: {note}" for note in self.notes]
        if self.num_problems:
            lines.append(f"{self.path}: {count_of(self.num_problems, 'row')} skipped:")
            lines += self.problem_lines()
        return lines

    def problem_lines(self) -> list[str]:
        """The first problems, each with file and line, and how many more there are."""
        shown = self.problems[:SHOWN_PROBLEMS]
        lines = [f"  {self.path}:{problem.row}: {problem.message}" for problem in shown]
        more = self.num_problems - len(shown)
        return [*lines, f"  and {more:,} more"] if more else lines


def good_rows(
    rows: Iterable[E | Problem], report: ReadReport, *, skip_bad_rows: bool
) -> Iterator[E]:
    """The examples among ``rows``; the bad rows go into the report, counted.

    Without ``skip_bad_rows`` nothing is yielded after the first bad row; the rest is read to count
    them all, except on standard input, which may never end.

    Raises DataError at the end where there were bad rows, or no example.
    """
    path = report.path
    for row in rows:
        if not isinstance(row, Problem):
            if skip_bad_rows or not report.num_problems:
                report.num_examples += 1
                yield row
            continue
        report.num_problems += 1
        if len(report.problems) < KEPT_PROBLEMS:
            report.problems.append(row)
        if path == "-" and not skip_bad_rows:
            break
    if report.num_problems and not (skip_bad_rows and report.num_examples):
        head = f"{path}: {count_of(report.num_problems, 'row')} cannot be read:"
        advice = (
            "No row is left"
            if skip_bad_rows
            else f"Mend the file, or leave bad rows out with {param('skip_bad_rows')}"
        )
        raise DataError("\n".join([head, *report.problem_lines(), advice]))
    if not report.num_examples:
        raise DataError(f"{path}: it holds no example; is it the right file?")


def label_names(examples: Iterable[TextExample]) -> list[str]:
    """The distinct labels: numbers first, in numeric order, then the others by code point."""
    found: set[str] = set()
    for each in examples:
        found.update(each.labels or ())
        if each.label is not None:
            found.add(each.label)
    return sorted(found, key=label_order)


def label_order(label: str) -> tuple[float, str]:
    """Sort key that puts "9" before "10", and numbers before words."""
    number = finite_number(label)
    return (math.inf if number is None else number, label)


def finite_number(text: str) -> float | None:
    """The finite number that a text spells, or None; 1_000 is none."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and "_" not in text else None


def canonical_label(value: object) -> str | None:
    """A label in one spelling whatever the format, or None for a value that cannot be one.

    Text loses the white space around it; 1 and 1.0 are both "1", 0.5 is "0.5", booleans "true" and
    "false".  None for an empty text, one with a lone surrogate, null, a number that is not finite,
    a list, an object, bytes.
    """
    if isinstance(value, str):
        return None if _has_lone_surrogate(value) else value.strip() or None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        whole = value.is_integer() and abs(value) <= MAX_EXACT_FLOAT
        return str(int(value)) if whole else repr(value)
    return None


def text_problem(name: str, value: object) -> str | None:
    """Why the value of that name is no text, or None where it is one."""
    if not isinstance(value, str):
        return f"{name!r} is {json_type(value)} where a text is expected"
    return f"{name!r} holds {_LONE_SURROGATE}" if _has_lone_surrogate(value) else None


def _has_lone_surrogate(text: str) -> bool:
    """JSON can spell one, and UTF-8 cannot."""
    return not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)


def json_type(value: object) -> str:
    """What a value is, in the words of JSON, for a message."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"a text with {_LONE_SURROGATE}" if _has_lone_surrogate(value) else "a text"
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    return f"a value of type {type(value).__name__}"


def count_of(number: int, noun: str) -> str:
    """A count with its noun: 1 row, 2,000 rows."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
