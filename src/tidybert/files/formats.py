"""The formats of files: a row of a table and a function each, from an open file to its rows.

``FORMATS`` is the table, of the documentation too; ``FileFormats`` are those that one kind of
examples reads, and ``source`` opens a file in its own.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import count, islice, repeat
from pathlib import Path
from typing import Any, Final, Literal

from tidybert.errors import DataError, UsageError, param, suggestion
from tidybert.files.annotations import brat_records, plain_record
from tidybert.files.arrow_files import (
    SPLITS_FILE,
    STATE_FILE,
    arrow_columns,
    class_names,
    parquet_columns,
    with_names,
)
from tidybert.files.columns import FASTTEXT_LABEL, KNOWN_NAMES, plain_name
from tidybert.files.folders import folder_names, folder_records
from tidybert.files.reading import ROLES, ReadOptions, ReadReport
from tidybert.files.records import delimited_rows, header_records, json_records, split_rows
from tidybert.files.rows import Problem, Record
from tidybert.files.sheets import WORKBOOKS, sheet_rows
from tidybert.files.text_lines import Line, decoded_lines, open_bytes, utf16_mark
from tidybert.storage.model_files import CONFIG_FILE

LISTED_FILES: Final = 1000
# So many lines show labels, where each comes so many times on average.
_LABELS_FROM: Final = 8
_LABELS_TIMES: Final = 4
TABLE_FLAGS: Final = ("header", "delimiter", "quoting", "skip_rows", "sheet")
"""The options that only rows of cells have a use for."""
Shape = Literal["cells", "columns", "objects", "lines"]


@dataclass(frozen=True)
class FileFormat:
    """A format of files.

    Args:
        what: such a file, in words.
        suffixes: that say it.
        shape: of what ``read`` gives: rows of cells, (names, rows of some columns), objects, lines.
        read: gets the open file, or with ``by_path`` its path, and the report.
        flags: the options about columns and cells that it has a use for.
    """

    what: str
    suffixes: tuple[str, ...]
    shape: Shape
    read: Callable[[Any, ReadReport], Any]
    flags: tuple[str, ...] = ROLES
    by_path: bool = False


def plain_lines(stream: Any, report: ReadReport) -> Iterator[Line]:
    """The lines of a file."""
    return decoded_lines(stream, report.options.codec(), report.path, report.guessed_encoding)


def _objects(stream: Any, report: ReadReport) -> Iterator[Record | Problem]:
    classes = class_names(report.path, report)
    for row in json_records(stream, report):
        row = row if isinstance(row, Problem) else plain_record(*row, report)
        yield row if isinstance(row, Problem) else (row[0], with_names(row[1], classes))


_CELLS: Final = ("delimiter", "quoting", "skip_rows")
_TABLE: Final = (*ROLES, "header", *_CELLS)
FORMATS: Final[Mapping[str, FileFormat]] = {
    "csv": FileFormat(
        "cells between commas, or what each row shows",
        (".csv",), "cells", partial(delimited_rows, file_format="csv"), _TABLE,
    ),
    "tsv": FileFormat(
        "cells between tabs, as Excel's Unicode text",
        (".tsv",), "cells", partial(delimited_rows, file_format="tsv"), _TABLE,
    ),
    "sheet": FileFormat(
        "a spreadsheet",
        WORKBOOKS, "cells", sheet_rows, (*ROLES, "header", "skip_rows", "sheet"), by_path=True,
    ),
    "jsonl": FileFormat(
        "a JSON object a line, also doccano's, Prodigy's",
        (".jsonl", ".ndjson"), "objects", _objects,
    ),
    "json": FileFormat(
        "a JSON array or object of objects or columns, Label Studio, Argilla",
        (".json",), "objects", _objects,
    ),
    "parquet": FileFormat("Parquet", (".parquet",), "columns", parquet_columns, by_path=True),
    "arrow": FileFormat(
        "Arrow, Feather, the folder of `save_to_disk`",
        (".arrow", ".feather"), "columns", arrow_columns, by_path=True,
    ),
    "folder": FileFormat(
        "a text a file, in a folder a class", (), "objects", folder_records, by_path=True
    ),
    "brat": FileFormat(
        "brat, beside `.txt`, or a folder of these",
        (".ann",), "objects", brat_records, by_path=True,
    ),
    "text": FileFormat("a text a line", (".txt",), "lines", plain_lines, ()),
    "label-text": FileFormat("label, space, text; fastText", (), "lines", plain_lines, ()),
    "swag": FileFormat(
        "SWAG's columns `sent1`, `sent2`, `ending0`, …, `label`",
        (), "cells", partial(delimited_rows, file_format="csv"), _CELLS,
    ),
    "codah": FileFormat(
        "CODAH: category, prompt, four endings, number",
        (), "cells", partial(delimited_rows, file_format="tsv"), _CELLS,
    ),
    "conll": FileFormat(
        "a word a line, blank lines between sentences",
        (".conll", ".conllu", ".iob", ".iob2", ".bio"), "lines", plain_lines, ("text", "label"),
    ),
}  # fmt: skip

_ARCHIVES: Final = (".zip", ".tar", ".tgz", ".7z", ".rar", ".bz2", ".xz", ".zst")
_PAGES: Final = (".pdf", ".doc", ".docx", ".odt", ".rtf", ".html", ".htm")
# What to do first with a file whose suffix says that it is not data, by its suffix.
_FIRST: Final = {
    ".numbers": "save the sheet as CSV",
    ".spacy": 'save each doc as a line {"text": …, "entities": [{"start", "end", "label"}]}',
    **dict.fromkeys(_ARCHIVES, "unpack it"),
    **dict.fromkeys(_PAGES, "save its text as CSV, JSON lines or plain text"),
}


@dataclass(frozen=True)
class FileFormats:
    """The formats that files of ``content``, such as texts, come in.

    Args:
        names: of rows of FORMATS, or of ``own``.
        own: formats that such files have in another way than others.
        others: what a suffix says here alone.
        listed: the names in words, where they need some.
        refused: options that such files have no use for.
        judge: tells the format of a file whose suffix does not, from its first bytes; None where
            they do not.
        every: judge all files that can be read as a stream, not only pipes.
    """

    content: str
    names: tuple[str, ...]
    own: Mapping[str, FileFormat] = field(default_factory=dict)
    others: Mapping[str, str] = field(default_factory=dict)
    listed: str = ""
    refused: tuple[str, ...] = ()
    judge: Callable[[bytes, ReadReport], tuple[str, str]] | None = None
    every: bool = False

    @cached_property
    def rows(self) -> dict[str, FileFormat]:
        """The table of these formats."""
        return {name: self.own.get(name) or FORMATS[name] for name in self.names}

    @cached_property
    def suffixes(self) -> dict[str, str]:
        """What a file's suffix says, .gz apart."""
        found = {
            suffix: name
            for name, row in self.rows.items()
            for suffix in row.suffixes
            if row.by_path or not self.every
        }
        return {**found, **self.others}

    def of(self, path: str, options: ReadOptions) -> str:
        """The format that the options or the suffix give; "" where the content has to."""
        if options.format is not None:
            return options.format
        if path == "-":
            return ""
        if Path(path).is_dir():
            return self._of_folder(Path(path))
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
            return ""
        return self.suffixes[suffix]

    def like(self, path: str, options: ReadOptions, trained: str) -> str | None:
        """The format of a file beside one of the format ``trained``; None: its content decides.

        The format of training is that of a file whose suffix says nothing.
        """
        if options.format is not None:
            return options.format
        suffix = _suffix(path)
        if suffix in self.suffixes or suffix in (".txt", *_FIRST) or self.every:
            return self.suffixes.get(suffix)
        by_stream = trained in self.rows and not self.rows[trained].by_path
        return trained if by_stream and Path(path).is_file() else None

    def check(self, path: str, name: str | None) -> None:
        """Raise UsageError for the name of another format; None passes."""
        if name is not None and name not in self.names:
            raise UsageError(
                f"{path}: {param('format', name)}: {self.content} are read from {self._listed()}"
                f"{suggestion(name, self.names)}"
            )

    def no_suffix(self, path: str) -> str:
        """The message for a file that neither its suffix nor its content explains."""
        return (
            f"{path}: the suffix {_suffix(path)!r} does not tell the format, and the first lines "
            f"do not either; {self.advice()}"
        )

    def advice(self) -> str:
        """Which formats can be given, as the end of a message."""
        return f"give {param('format')}, one of {self._listed()}"

    def _of_folder(self, folder: Path) -> str:
        """The format of a folder; DataError for one in the place of a file."""
        if (folder / CONFIG_FILE).is_file():
            raise DataError(
                f"{folder}: it is a folder; and it holds a model; name a file of {self.content}"
            )
        if "arrow" in self.names and any(
            (folder / one).is_file() for one in (STATE_FILE, SPLITS_FILE)
        ):
            return "arrow"
        names = [each.name for each in islice(folder.iterdir(), LISTED_FILES)]
        if "brat" in self.names and any(_suffix(name) == ".ann" for name in names):
            return "brat"
        fitting = sorted(
            name for name in names if _suffix(name) in self.suffixes and name[0] != "."
        )
        texts = [name for name in fitting if _suffix(name) == ".txt"]
        if "folder" in self.names and (
            any(folder_names(folder / one) for one in folder_names(folder, folders=True))
            or (len(texts) > 1 and texts == fitting)
        ):
            return "folder"
        like = f", such as {str(folder / fitting[0])!r}" if fitting else ""
        raise DataError(f"{folder}: it is a folder; name a file in it{like}")

    def _listed(self) -> str:
        return self.listed or ", ".join(self.names)


def _suffix(path: str) -> str:
    return Path(Path(path).name.lower().removesuffix(".gz")).suffix


@dataclass(frozen=True)
class Source:
    """The rows of a file or of memory, as a format of this shape gives them."""

    shape: Shape
    rows: Any

    def records(self, report: ReadReport) -> Iterator[Any]:
        """The rows of any shape but lines as objects, each a Record or a Problem."""
        if self.shape == "cells":
            yield from header_records(self.rows, report)
        elif self.shape == "columns":
            names, rows = self.rows
            yield from rows(names)
        else:
            yield from self.rows


@contextmanager
def source(report: ReadReport, formats: FileFormats) -> Iterator[Source]:
    """Open the report's file, or its rows in memory; notes the format that was judged."""
    memory = report.memory
    if memory is not None:
        refuse_flags(report, *formats.refused)
        has_names = memory.names is not None
        columns = (memory.names, memory.records)
        objects = (
            row if isinstance(row, Problem) else plain_record(*row, report)
            for row in ([] if has_names else memory.records())
        )
        yield Source("columns", columns) if has_names else Source("objects", objects)
        return
    path = report.path
    report.format = formats.of(path, report.options)
    if report.format and formats.rows[report.format].by_path:
        yield _opened(path, report, formats)
        return
    with open_bytes(path) as stream:
        is_known, judged_by = bool(report.format), ""
        if not is_known and formats.judge is not None:
            report.format, judged_by = formats.judge(stream.peek(1), report)
        is_open = report.format == "text" and report.options.format is None
        shown = None
        if is_open and "tsv" in formats.names and (report.need_label or utf16_mark(stream)):
            shown = _shown_table(stream, report, has_labels="label-text" in formats.names)
        if shown:
            report.format, report.shown["format"] = shown
        elif not is_known and is_open and report.need_label and path != "-":
            raise UsageError(formats.no_suffix(path))
        elif not is_known:
            report.guess_format(report.format, judged_by)
        yield _opened(stream, report, formats)


def _opened(opened: Any, report: ReadReport, formats: FileFormats) -> Source:
    found = formats.rows[report.format]
    of_format = [name for name in (*ROLES, *TABLE_FLAGS) if name not in found.flags]
    refuse_flags(report, *formats.refused, *of_format)
    if found.by_path and (report.path == "-" or report.path.lower().endswith(".gz")):
        raise UsageError(
            f"{report.path}: {param('format', report.format)} cannot be read from standard input "
            "or packed; name a file"
        )
    return Source(found.shape, found.read(opened, report))


def _shown_table(stream: Any, report: ReadReport, *, has_labels: bool) -> tuple[str, str] | None:
    """The format with labels that the first lines of a text show beyond doubt, and by what.

    It is a table where each row has as many tabs as the first: so Excel saves it.
    """
    head, mark = stream.peek(1), utf16_mark(stream)
    texts = head.decode(mark or report.options.codec(), "ignore").split("\n")
    numbered: Iterator[Line] = zip(count(1), (f"{one}\n" for one in texts[:-1]), repeat(None))
    options = replace(report.options, delimiter=None, quoting=mark is not None)
    rows = list(split_rows(numbered, "tsv", options))
    # The last quote may close beyond the head.
    cells = [row[1] for row in rows if not isinstance(row, Problem)]
    widths = set(map(len, cells))
    if len(widths) == 1 and widths.isdisjoint((0, 1)):
        if widths == {2}:
            _without_names(cells, report)
        return "tsv", "tabs in each line"
    first = texts[0].removeprefix("\ufeff")
    if has_labels and first.startswith(FASTTEXT_LABEL):
        return "label-text", f"{FASTTEXT_LABEL} in the first line"
    for mark in ",;|" if has_labels else "":
        names = {plain_name(name.strip('" \r')) for name in first.split(mark)}
        if any(names & each.texts and names & each.labels for each in KNOWN_NAMES):
            return "csv", "the columns' names in the first line"
    words = [line.split() for line in texts[:-1] if line.strip()]
    labels = [line[0].casefold() for line in words]
    others = {word.casefold() for line in words for word in line[1:]}
    # Words that begin sentences come in others too.
    is_apart = all(one.isdecimal() for one in labels) or others.isdisjoint(labels)
    if has_labels and is_apart and _are_labels(labels) and all(line[1:] for line in words):
        return "label-text", "the first word of each line"
    return None


def _without_names(rows: list[list[str]], report: ReadReport) -> None:
    """Take the columns of a label and a text where no name says which, and only one repeats."""
    options = report.options
    known = {name for each in KNOWN_NAMES for name in each.texts | each.labels}
    if report.recorded or options != ReadOptions(encoding=options.encoding):
        return
    labels = [at for at, column in enumerate(zip(*rows, strict=True)) if _are_labels(column)]
    if len(labels) == 1 and known.isdisjoint(map(plain_name, rows[0])):
        (at,) = labels
        report.options = replace(options, header=False, label=at, text=1 - at)
        report.guessed += ["text", "label"]
        report.notes.append(f"no header; column {at} is the label, for its words come again")


def _are_labels(column: Sequence[str]) -> bool:
    """Whether the cells are few words that come again and again, the first too: no header does."""
    names = {one.strip() for one in column}
    few = len(column) >= _LABELS_FROM and _LABELS_TIMES * len(names) <= len(column)
    return few and not any(not one or " " in one for one in names) and column[0] in column[1:]


def refuse_flags(report: ReadReport, *names: str) -> None:
    """Raise UsageError where one of these is given, which the report's format has no use for."""
    for name in names:
        if getattr(report.options, name) != getattr(ReadOptions, name):
            raise UsageError(
                f"{report.path}: {param(name)} has no meaning for {param('format', report.format)}"
                + (f"; is another {param('format')} meant?" if name in ROLES else "")
            )
