"""ReadReport: how a file was read, and which of its rows could not be."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidybert.errors import DataError, in_python, param
from tidybert.files.in_memory import Memory
from tidybert.files.raw_rows import Problem, shown_problems
from tidybert.files.read_options import ROLES, ReadOptions
from tidybert.files.wording import count_of

KEPT_PROBLEMS: Final = 1000


@dataclass
class ReadReport:
    """How a file was read; filled on the way, complete when reading ends."""

    path: str = ""
    """The file, or the name of the parameter that holds the rows in memory."""
    memory: Memory | None = None
    """The rows, where they are in no file."""
    options: ReadOptions = field(default_factory=ReadOptions)
    """How to read it."""
    need_label: bool = False
    """Whether a row without a label is a bad row."""
    reads_together: bool = False
    """Whether texts that belong together are read, whose columns have names of their own."""
    keep_columns: bool = False
    """Whether each example keeps the columns that are not its text."""
    recorded: Mapping[str, str] = field(default_factory=dict)
    """The columns of the file that trained a model, by role: this file's, where no flag says other
    and it has them."""
    format: str = ""
    columns: dict[str, str] = field(default_factory=dict)
    """Each role (text, text_pair, label) and the name or number of the column it is read from."""
    guessed: list[str] = field(default_factory=list)
    """The roles whose column no flag gave, and "format" where standard input's was guessed."""
    as_trained: list[str] = field(default_factory=list)
    """The roles whose column no flag gave, and training read from a column of this name."""
    header: bool | None = None
    """Whether the first row named the columns; None for formats without a header."""
    label_values: dict[str, object] = field(default_factory=dict)
    """By name the labels of rows in memory, as the program gave them."""
    num_examples: int = 0
    num_problems: int = 0
    """Rows that could not be read; with ``skip_bad_rows``, the number of rows skipped."""
    problems: list[Problem] = field(default_factory=list)
    """The first of them, at most KEPT_PROBLEMS."""
    notes: list[str] = field(default_factory=list)
    """What else was found: blank lines, rows of another width, a first row taken for data."""

    def place(self, row: int) -> str:
        """Where a row is: file:line, or name[place] for rows in memory."""
        return f"{self.path}:{row}" if self.memory is None else f"{self.path}[{row}]"

    def keep_label(self, name: str, value: object) -> None:
        """Keep the value of a label in memory; DataError where two values have one name."""
        if self.memory is not None:
            kept = self.label_values.setdefault(name, value)
            if isinstance(kept, str) != isinstance(value, str) or (
                not isinstance(value, str) and kept != value
            ):
                raise DataError(
                    f"{self.path}: the labels {kept!r} and {value!r} look the same in files: give "
                    "labels of one type"
                )

    def guess_format(self, name: str, judged_by: str) -> None:
        """Note the format, and what showed it, such as the first line."""
        self.format = name
        self.guessed.append("format")
        self.notes.append(f"read as {param('format', name)}, judged by {judged_by}")

    def note_blank(self, count: int) -> None:
        """Note how many blank lines were passed over."""
        if count:
            self.notes.append(f"{count_of(count, 'blank line')} passed over")

    def lines(self, spell: Callable[[str], str] = in_python) -> list[str]:
        """The report as plain text: columns, notes, and the rows that were skipped.

        ``spell`` writes the parameters that the lines name.
        """
        lines = []
        if self.columns:
            columns = ", ".join(f"{param(role)} {name}" for role, name in self.columns.items())
            origins = [
                f"{' and '.join(map(param, roles))} {origin}"
                for roles, origin in (
                    (self.as_trained, "as in training"),
                    ([name for name in self.guessed if name in ROLES], "guessed from the names"),
                )
                if roles
            ]
            origin = f" ({'; '.join(origins)})" if origins else ""
            lines.append(f"{self.path}: read as {self.format}, {columns}{origin}")
        lines += [f"{self.path}: {note}" for note in self.notes]
        if self.num_problems:
            lines.append(f"{self.path}: {count_of(self.num_problems, 'row')} skipped:")
            lines += self.problem_lines()
        return [spell(line) for line in lines]

    def problem_lines(self) -> list[str]:
        """The first problems, each with file and line, and how many more there are."""
        placed = [(self.place(each.row), each.message) for each in self.problems]
        return shown_problems(placed, self.num_problems)
