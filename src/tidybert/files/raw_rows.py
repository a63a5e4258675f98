"""What a reader makes of each row of a source: a record, or the problem that it has."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

SHOWN_PROBLEMS: Final = 5

# An object's number (its line, or its place in a Parquet file, from 1) and its values by name.
Record = tuple[int, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Problem:
    """A row that cannot be read: the 1-based line where it starts, and why.

    A row in memory has its place, from 0, for its line.
    """

    row: int
    message: str


def problem_lines(problems: Sequence[tuple[str, Problem]], total: int) -> list[str]:
    """The first problems, each with its file and line, and how many more of ``total`` there are."""
    return shown_problems([(f"{path}:{each.row}", each.message) for path, each in problems], total)


def shown_problems(problems: Sequence[tuple[str, str]], total: int) -> list[str]:
    """The first problems, each a place and a message, and how many more of ``total`` there are."""
    shown = problems[:SHOWN_PROBLEMS]
    lines = [f"  {place}: {message}" for place, message in shown]
    more = total - len(shown)
    return [*lines, f"  and {more:,} more"] if more else lines
