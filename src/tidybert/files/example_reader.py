"""ExampleReader: from a path and options to a stream of one kind of example."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, Generic, Self, TypeVar

from tidybert.errors import DataError, LimitError, UsageError, param, suggestion
from tidybert.files.reading import KEPT_PROBLEMS, ROLES, Reading, ReadOptions, ReadReport
from tidybert.files.rows import MEMORY, Memory, Problem, TupleNames, count_of
from tidybert.storage.model_files import CONFIG_FILE

# FileFormats: the formats that files of one kind come in, and how a file's own is found.

LISTED_FILES: Final = 1000
TABLE_FLAGS = ("header", "delimiter", "quoting", "skip_rows")
"""The options that only rows of cells have a use for."""
_SHEETS: Final = (".xlsx", ".xls", ".ods", ".numbers")
_ARCHIVES: Final = (".zip", ".tar", ".tgz", ".7z", ".rar", ".bz2", ".xz", ".zst")
_PAGES: Final = (".pdf", ".doc", ".docx", ".odt", ".rtf", ".html", ".htm")
# What to do first with a file whose suffix says that it is not data, by its suffix.
_FIRST: Final = {
    **dict.fromkeys(_SHEETS, "save the sheet as CSV"),
    **dict.fromkeys(_ARCHIVES, "unpack it"),
    **dict.fromkeys(_PAGES, "save its text as CSV, JSON lines or plain text"),
}


@dataclass(frozen=True)
class FileFormats:
    """The formats of files of ``content``, such as texts.

    suffixes: what a file's suffix says, .gz apart.
    listed: the names in words, where they need some.
    """

    content: str
    names: tuple[str, ...]
    suffixes: Mapping[str, str]
    listed: str = ""

    def of(self, path: str, options: ReadOptions) -> str:
        """The format that the options or the suffix give; "" for a pipe where neither does."""
        if options.format is not None:
            return options.format
        if path == "-":
            return ""
        if Path(path).is_dir():
            raise DataError(f"{path}: it is a folder; {self._inside(Path(path))}")
        suffix = _suffix(path)
        if suffix not in self.suffixes:
            if Path(path).is_fifo():
                return ""
            if not Path(path).exists():
                raise DataError(
                    f"{path}: no such file; name one, or - to read {self.content} from standard "
                    "input"
                )
            if suffix in _FIRST:
                raise UsageError(f"{path}: {_FIRST[suffix]} first, and name that file")
            raise UsageError(
                f"{path}: the suffix {suffix!r} does not tell the format; {self.advice()}"
            )
        return self.suffixes[suffix]

    def like(self, path: str, options: ReadOptions, trained: str) -> str | None:
        """The format of a file beside one of the format ``trained``; None: its content decides.

        The format of training is that of a file whose suffix says nothing.
        """
        if options.format is not None:
            return options.format
        suffix = _suffix(path)
        if suffix in self.suffixes or suffix in (".txt", *_FIRST) or not self.suffixes:
            return self.suffixes.get(suffix)
        return trained if trained in self.names and Path(path).is_file() else None

    def check(self, path: str, name: str | None) -> None:
        """Raise UsageError for the name of another format; None passes."""
        if name is not None and name not in self.names:
            raise UsageError(
                f"{path}: {param('format', name)}: {self.content} are read from {self._listed()}"
                f"{suggestion(name, self.names)}"
            )

    def advice(self) -> str:
        """Which formats can be given, as the end of a message."""
        return f"give {param('format')}, one of {self._listed()}"

    def _inside(self, folder: Path) -> str:
        """What to do about a folder in the place of a file."""
        if (folder / CONFIG_FILE).is_file():
            return f"and it holds a model; name a file of {self.content}"
        names = [each.name for each in islice(folder.iterdir(), LISTED_FILES)]
        fitting = sorted(
            name for name in names if _suffix(name) in self.suffixes and name[0] != "."
        )
        like = f", such as {str(folder / fitting[0])!r}" if fitting else ""
        return f"name a file in it{like}"

    def _listed(self) -> str:
        return self.listed or ", ".join(self.names)


def _suffix(path: str) -> str:
    return Path(Path(path).name.lower().removesuffix(".gz")).suffix


def refuse_file_options(options: ReadOptions, name: str) -> None:
    """Raise UsageError for an option that rows in memory have no use for."""
    for each in ("format", "encoding", *TABLE_FLAGS):
        if getattr(options, each) != getattr(ReadOptions, each):
            raise UsageError(f"{name}: {param(each)} is for files, and these data are in memory")


def refuse_flags(report: ReadReport, *names: str) -> None:
    """Raise UsageError where one of these is given, which the report's format has no use for."""
    for name in names:
        if getattr(report.options, name) != getattr(ReadOptions, name):
            raise UsageError(
                f"{report.path}: {param(name)} has no meaning for {param('format', report.format)}"
                + (f"; is another {param('format')} meant?" if name in ROLES else "")
            )


E = TypeVar("E")


@dataclass(frozen=True)
class ExampleReader(Generic[E]):
    """Reads files of one kind of example.

    Args:
        rows: yields the file's examples, and a Problem for each bad row.  It gets the options, a
            ReadReport that has the path, ``need_label``, and the details.
        formats: the formats that it reads.
        tuple_names: names the values of a row in memory that is a tuple; None reads files alone.
        details: arguments of ``rows`` that every call passes on, beside its own.
    """

    rows: Callable[..., Iterator[E | Problem]]
    formats: FileFormats
    tuple_names: TupleNames | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def with_details(self, **details: Any) -> Self:
        """The same reader, which passes these details on."""
        return replace(self, details={**self.details, **details})

    def __call__(
        self,
        path: str | Path | Memory,
        options: ReadOptions | None = None,
        *,
        need_label: bool,
        skip_bad_rows: bool = False,
        report: ReadReport | None = None,
        like: Reading | None = None,
        **details: Any,
    ) -> Iterator[E]:
        """Read a file, standard input for "-", or rows in memory, as a stream of examples in order.

        Args:
            need_label: whether a row without a label is a bad row.
            skip_bad_rows: leave bad rows out.  Otherwise nothing is yielded after the first one;
                the rest is read to count them all, except from a pipe, which may never end.
            report: filled on the way.
            like: how the file that trained a model was read: the defaults of what ``options``
                leaves open.

        Raises DataError for a file that is missing, empty, damaged or has bad rows, with file and
        line, and UsageError for options that do not fit.
        """
        report = ReadReport() if report is None else report
        options = options or ReadOptions()
        if isinstance(path, Memory):
            report.path, report.memory, report.format = path.name, path, MEMORY
            refuse_file_options(options, path.name)
        else:
            report.path = str(path)
            self.formats.check(report.path, options.format)
        if like is not None:
            file_format = options.format
            if report.memory is None:
                file_format = self.formats.like(report.path, options, like.format)
            options = replace(like.defaults(options, file_format), format=file_format)
            report.recorded = like.columns
        report.options, report.need_label = options, need_label
        rows = self.rows(options, report, need_label=need_label, **self.details, **details)
        try:
            for row in rows:
                if not isinstance(row, Problem):
                    if skip_bad_rows or not report.num_problems:
                        report.num_examples += 1
                        yield row
                    continue
                report.num_problems += 1
                if len(report.problems) < KEPT_PROBLEMS:
                    report.problems.append(row)
                is_pipe = report.path == "-" or Path(report.path).is_fifo()
                is_pipe &= report.memory is None
                if is_pipe and not skip_bad_rows:
                    break
        except MemoryError:
            raise LimitError(
                f"{report.path}: too little memory to read on after "
                f"{count_of(report.num_examples, 'example')}; split the file, or free memory"
            ) from None
        what = "file" if report.memory is None else "data"
        if report.num_problems and not (skip_bad_rows and report.num_examples):
            head = f"{report.path}: {count_of(report.num_problems, 'row')} cannot be read:"
            fix = f"Fix the {what}, or leave bad rows out with {param('skip_bad_rows', True)}"
            advice = "No row is left" if skip_bad_rows else fix
            raise DataError("\n".join([head, *report.problem_lines(), advice]))
        if not report.num_examples:
            raise DataError(f"{report.path}: it holds no example; is it the right {what}?")
