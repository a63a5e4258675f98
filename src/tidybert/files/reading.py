"""Reading: how a file was read, as tidybert.json keeps it, and the defaults that it gives others.

A model's next files are mostly laid out as the one that trained it.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Self

from tidybert.errors import (
    ConfigError,
    DataError,
    TidyBertError,
    UsageError,
    in_python,
    param,
    suggestion,
)
from tidybert.files.rows import (
    SHOWN_PROBLEMS,
    Memory,
    Problem,
    count_of,
    shown_problems,
    skipped_rows,
)
from tidybert.options import Options, option

# How a file of labelled texts is to be read, one field a flag, and what public files need.

ROLES: Final = ("text", "text_pair", "label")
DELIMITER_NAMES: Final = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|"}

_WITH_LABELS: Final = ("check", "evaluate", "finetune", "label", "predict")
_COLUMN: Final[dict[str, Any]] = {
    "at_least": 0,
    "expected": "a column's name, or its number from 0, left to right",
}


@dataclass(frozen=True)
class ReadOptions(Options):
    """How to read a file of texts and labels; each field is the flag of the same name.

    A column is named by its name in the header, or by its number, counted from 0: the first column
    is 0, the second 1.  A name in the header wins over a number, so that a column headed "3" is
    found by ``--text 3``; an int is always a number.  Raises UsageError for a value that no file
    could be read with.
    """

    PANEL: ClassVar = "Data"

    text: str | int | None = option(None, **_COLUMN, part="columns")
    """``--text``: Column of the text, by name or number from 0. If not set: guessed from common
    names."""
    text_pair: str | int | None = option(None, **_COLUMN, part="pairs")
    """``--text-pair``: Column of the second text of a pair. If not set: none if --text is set, else
    guessed from common names."""
    label: str | int | None = option(None, **_COLUMN, part="columns")
    """``--label``: Column of the class or score; for label sets several of 0 and 1: toxic,insult.
    If not set: guessed from common names."""
    label_separator: str | None = option(None, part="labels", commands=_WITH_LABELS)
    """``--label-separator``: Characters between the labels of a label set, such as semicolon. If
    not set: comma. JSON, Parquet and cells may contain lists."""
    format: str | None = option(None, listed="tidybert.files.formats:FORMATS")
    """``--format``: ``{names}``. If not set: by suffix or content."""
    sheet: str | None = option(None, part="sheets")
    """``--sheet NAME``: Sheet of a spreadsheet. If not set: the first that is not hidden."""
    header: bool | None = option(None, part="headers")
    """``--header/--no-header``: Read column names from the first row of csv or tsv, or not. If not
    set: tidybert looks for the columns there."""
    delimiter: str | None = option(None, part="tables")
    """``--delimiter``: Character between cells, or tab, comma, semicolon or pipe. If not set: comma
    in csv, tab in tsv, or what every row shows."""
    quoting: bool | None = option(None, part="tables")
    """``--quoting/--no-quoting``: Read "..." as one cell that may contain delimiters and line ends,
    or as plain text. If not set: plain text only between tabs."""
    encoding: str | None = option(None)
    """``--encoding``: Encoding of the file. If not set: utf-8, or what the file shows: utf-16 by
    its byte-order mark, cp1252 by its letters."""
    skip_rows: int = option(0, at_least=0, part="tables")
    """``--skip-rows N``: Pass over the first N lines of csv or tsv, such as a title."""
    follow_links: bool = option(False)
    """``--follow-links``: Also read what links in a folder of texts name outside of it."""

    def __post_init__(self) -> None:
        """Check each value by itself; what depends on the file is checked on reading."""
        super().__post_init__()
        if self.delimiter is not None:
            delimiter = DELIMITER_NAMES.get(self.delimiter, self.delimiter)
            if delimiter.isspace() and delimiter != "\t":
                raise UsageError(
                    f"{param('delimiter')} {delimiter!r}: texts hold spaces; for a label, white "
                    f"space and a text on each line give {param('format', 'label-text')}"
                )
            if len(delimiter) != 1 or delimiter in '"\0':
                raise UsageError(
                    f"{param('delimiter')} {delimiter!r}: give one character other than a quote, "
                    f"or one of {', '.join(name for name in DELIMITER_NAMES if name.isalpha())}"
                )
        if self.label_separator == "":
            raise UsageError(
                f"{param('label_separator')} '': give the characters between labels, such as ;"
            )
        try:
            "a".encode(self.codec())
        except (LookupError, ValueError):
            raise UsageError(
                f"{param('encoding')} {self.encoding!r}: not an encoding of text; give a name such "
                "as utf-8, latin-1, cp1252 or utf-16"
            ) from None

    def codec(self) -> str:
        """The encoding of the file."""
        return "utf-8" if self.encoding is None else self.encoding

    def separator(self, file_format: str) -> str:
        """The character between the cells of a csv or tsv file."""
        default = "\t" if file_format == "tsv" else ","
        given = default if self.delimiter is None else self.delimiter
        return DELIMITER_NAMES.get(given, given)

    def quotes(self, file_format: str) -> bool:
        """Whether quotes enclose cells: given, or on except between tabs."""
        return self.separator(file_format) != "\t" if self.quoting is None else self.quoting

    def between_labels(self) -> str:
        """The characters between the labels of a text that has several."""
        given = "," if self.label_separator is None else self.label_separator
        return DELIMITER_NAMES.get(given, given)


# ReadReport: how a file was read, and which of its rows could not be.

KEPT_PROBLEMS: Final = 1000
KEPT_REASONS: Final = 20
SHOWN_MOVES: Final = 3


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
    known: Sequence[str] = ()
    """The labels that a model has, whose spelling counts."""
    counts_votes: bool = False
    """Whether each annotator's label of a text counts, and not one alone."""
    reads_together: bool = False
    """Whether texts that belong together are read, whose columns have names of their own."""
    keep_columns: bool | Literal["all"] = False
    """Whether each example keeps the columns that are not its text, or all."""
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
    has_verdicts: bool | None = None
    """Whether the column "answer" accepts and rejects rows, as Prodigy's; None: none seen yet."""
    label_values: dict[str, object] = field(default_factory=dict)
    """By name the labels of rows in memory, as the program gave them."""
    num_examples: int = 0
    num_problems: int = 0
    """Rows that could not be read; with ``skip_bad_rows``, the number of rows skipped."""
    num_faults: int = 0
    """Those of them that stop reading unless bad rows are skipped."""
    problems: list[Problem] = field(default_factory=list)
    """The first of them, at most KEPT_PROBLEMS."""
    reasons: Counter[str] = field(default_factory=Counter)
    """How many rows have each reason; what comes after KEPT_REASONS of these is other."""
    drawn: Counter[str] = field(default_factory=Counter)
    """How many texts say that they were drawn at random, or chosen, to be labelled."""
    notes: list[str] = field(default_factory=list)
    """What else was found: blank lines, rows of another width, a first row taken for data."""
    shown: dict[str, str] = field(default_factory=dict)
    """What no flag gave and the file shows beyond doubt: its delimiter, its encoding."""
    escape: str | None = None
    """What stands before a quote in quotes, where the file shows that it is not another quote."""
    files: list[str] = field(default_factory=list)
    """The files of a folder, where each is a row."""
    num_blank: int = 0
    """Examples with a blank text; of rows left out, the reasons tell."""
    moved: list[int] = field(default_factory=list)
    """By how many characters each span was moved to where its text stands."""
    beside_gold: int = 0
    """Annotations that are not read, because another is the task's ground truth."""

    @property
    def guessed_encoding(self) -> dict[str, str] | None:
        """Where to put the encoding that the file shows; None where a flag gives it."""
        return self.shown if self.options.encoding is None else None

    @property
    def is_pipe(self) -> bool:
        """Whether it can be read only once, and may never end."""
        return self.memory is None and (self.path == "-" or Path(self.path).is_fifo())

    def place(self, row: int) -> str:
        """Where a row is: file:line, a folder's file, or name[place] for rows in memory."""
        if self.files:
            return str(Path(self.path, self.files[row - 1]))
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

    def leave_out(self, problem: Problem) -> None:
        """Count a row that cannot be read, and keep it among the first."""
        reason = problem.reason()
        is_kept = reason in self.reasons or len(self.reasons) < KEPT_REASONS
        self.reasons[reason if is_kept else "other reasons"] += 1
        self.num_problems += 1
        self.num_faults += problem.is_fault
        if len(self.problems) < (KEPT_PROBLEMS if problem.is_fault else SHOWN_PROBLEMS):
            self.problems.append(problem)

    def record(self) -> dict[str, Any]:
        """What a RUN records of it: rows read, left out by reason, moved, and what was found."""
        found = {
            "rows": self.num_examples,
            "left_out": self.num_problems,
            "reasons": dict(self.reasons.most_common()),
            "moved": len(self.moved),
            "drawn": dict(self.drawn),
            "notes": self.lines(),
        }
        return {name: value for name, value in found.items() if value or name == "rows"}

    def guess_format(self, name: str, judged_by: str) -> None:
        """Note the format, and what showed it, such as the first line; "" where it is the usual."""
        self.format = name
        if judged_by:
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
        shown = f" with {' and '.join(self.shown.values())}" if self.shown else ""
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
            lines.append(f"{self.path}: read as {self.format}{shown}, {columns}{origin}")
        elif shown:
            lines.append(f"{self.path}: read as {self.format}{shown}")
        lines += [f"{self.path}: {note}" for note in self.notes]
        if self.drawn:
            random, chosen = self.drawn["random"], self.drawn["chosen"]
            said = f"{random:,} labelled texts were drawn at random, {chosen:,} were chosen"
            lines.append(f"{self.path}: {said}")
        if self.moved:
            lines.append(f"{self.path}: {moved_spans(self.moved)}")
        if self.beside_gold:
            beside = count_of(self.beside_gold, "annotation")
            lines.append(f"{self.path}: {beside} beside a ground truth not read")
        if self.num_problems:
            lines += self.skipped_lines()
        return [spell(line) for line in lines]

    def skipped_lines(self) -> list[str]:
        """How many rows are left out, by reason, and the first of them."""
        return [f"{self.path}: {skipped_rows(self.reasons)}", *self.problem_lines()]

    def problem_lines(self, *, faults: bool = False) -> list[str]:
        """The first problems, each with file and line, and how many more there are."""
        shown = [each for each in self.problems if each.is_fault or not faults]
        placed = [(self.place(each.row), each.message) for each in shown]
        return shown_problems(placed, self.num_faults if faults else self.num_problems)


def moved_spans(moved: Sequence[int]) -> str:
    """How many spans are not where the data say, and by how many characters they were moved."""
    by = Counter(moved).most_common(SHOWN_MOVES)
    shown = ", ".join(f"{count:,} by {distance:,}" for distance, count in by)
    most = f", at most by {max(moved):,}" if len(set(moved)) > SHOWN_MOVES else ""
    return (
        f"{count_of(len(moved), 'span')} not at the given place, moved to the nearest where the "
        f"text has it: {shown}{most} (characters)"
    )


# What a file has in common with another only where both have one format.
_OF_FORMAT: Final = ("delimiter", "quoting", "encoding", "skip_rows")


@dataclass(frozen=True)
class Reading:
    """How a file was read.

    Args:
        format: csv, tsv, jsonl, ...
        columns: the column that each role (text, text_pair, label) was read from: its name, or its
            number where no header names it.
        header: whether the first row named the columns; None for formats without a header.
        delimiter, quoting, encoding, label_separator, skip_rows: as given, see ReadOptions.

    Raises ConfigError for a value that no file could be read with.
    """

    format: str
    columns: Mapping[str, str] = field(default_factory=dict)
    header: bool | None = None
    delimiter: str | None = None
    quoting: bool | None = None
    encoding: str | None = None
    label_separator: str | None = None
    skip_rows: int = 0

    def __post_init__(self) -> None:
        for name in ("format", "delimiter", "encoding", "label_separator"):
            if name == "format" or getattr(self, name) is not None:
                _check(name, getattr(self, name), str, "a text")
        for name in ("header", "quoting"):
            if getattr(self, name) is not None:
                _check(name, getattr(self, name), bool, "true or false")
        _check("skip_rows", self.skip_rows, int, "a number of lines")
        for role, name in _check("columns", self.columns, dict, "an object").items():
            if role not in ROLES:
                raise ConfigError(f"reading: unknown column {role!r}{suggestion(role, ROLES)}")
            _check(f"columns.{role}", name, str, "the name of a column")
        try:
            self.defaults(ReadOptions(), self.format)
        except TidyBertError as error:
            raise ConfigError(f"reading: {error.message}") from None

    @classmethod
    def of(cls, options: ReadOptions, report: ReadReport) -> Self:
        """How the file of a complete report was read."""
        given = {name: getattr(options, name) for name in (*_OF_FORMAT, "label_separator")}
        return cls(report.format, dict(report.columns), report.header, **given)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Of what ``to_dict`` gave; raises ConfigError for other values."""
        known = [each.name for each in fields(cls)]
        for key in values:
            if key not in known:
                raise ConfigError(f"reading: unknown key {key!r}{suggestion(key, known)}")
        if "format" not in values:
            raise ConfigError("reading: missing key 'format'")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Values for JSON."""
        return asdict(self)

    def defaults(self, given: ReadOptions, file_format: str | None) -> ReadOptions:
        """``given``, and what it leaves open as here.

        Delimiter, quoting, encoding and rows to skip pass on to a file of the same format alone.
        The columns are no options: readers look for them by ``ReadReport.recorded``.
        """
        names = _OF_FORMAT if file_format == self.format else ()
        open_ones = {
            name: getattr(self, name)
            for name in (*names, "label_separator")
            if getattr(given, name) == getattr(ReadOptions, name)
        }
        return replace(given, **open_ones)


def _check(name: str, value: Any, kind: type, expected: str) -> Any:
    # type() and not isinstance: to Python, true is an int.
    if type(value) is not kind:
        raise ConfigError(f"reading: {name} is {value!r:.80}; {expected} is needed")
    return value
