"""The rows of each format as (row number, text, second text, label), their columns chosen.

Each function fills the report on the way.  A role without a column is MISSING, so that it is not
mistaken for a null in the file.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from tidybert.errors import DataError, UsageError, param, suggestion
from tidybert.files.columns import Columns, find_columns, has_header
from tidybert.files.delimited_rows import CellsRow
from tidybert.files.raw_rows import Problem, Record
from tidybert.files.read_options import ROLES
from tidybert.files.read_report import ReadReport
from tidybert.files.records import parquet_names, parquet_rows
from tidybert.files.text_lines import Line, chomp
from tidybert.files.wording import count_of, keys_seen

MISSING: Final = object()

# A row's number, its text, second text and label as the file holds them, and where the report wants
# them the columns other than the text's, by name.
Values = tuple[int, object, object, object, dict[str, object] | None]


@dataclass(frozen=True, slots=True)
class LabelCells:
    """The cells of a row's label columns, by the columns' names."""

    cells: dict[str, object]


def delimited_values(
    rows: Iterator[CellsRow | Problem], report: ReadReport
) -> Iterator[Values | Problem]:
    """Rows of csv and tsv; with a header each must be as wide as it.

    Without one a row must reach the last column asked for, and rows of another width than the first
    are noted (some published files carry extra columns on some rows).
    """
    columns: Columns | None = None
    names: Sequence[str] = ()
    width = ragged = first_ragged = 0
    lone_label: object = None
    for row in rows:
        if isinstance(row, Problem):
            if columns is None and report.options.header is not False:
                raise DataError(f"{report.path}:{row.row}: {row.message}")
            yield row
            continue
        number, cells = row
        is_first = columns is None
        if columns is None:
            width = len(cells)
            columns = _delimited_columns(cells, report)
            names = [cell.strip() if report.header else str(at) for at, cell in enumerate(cells)]
            _check_names(names, names if report.keep_columns else (), report)
            if report.header:
                continue
        elif len(cells) != width:
            if report.header or len(cells) <= columns.last():
                yield Problem(number, _ragged(cells, width, columns, report))
                continue
            ragged += 1
            first_ragged = first_ragged or number
        values = _values(number, cells, columns, names if report.keep_columns else None)
        if is_first and report.options.header is None:
            lone_label = values[3]
        elif values[3] == lone_label:
            lone_label = None
        yield values
    if ragged:
        report.notes.append(
            f"{count_of(ragged, 'row')} of another width than the first (line {first_ragged} is "
            "one); only the columns asked for are read"
        )
    if isinstance(lone_label, str) and report.num_examples > 1:
        report.notes.append(
            f"the first row's label {lone_label[:40]!r} is in no other row; if that row names "
            f"the columns, give {param('header')}"
        )


def record_values(
    rows: Iterator[Record | Problem], report: ReadReport
) -> Iterator[Values | Problem]:
    """Rows that are objects: keys given are looked up in each, others guessed from the first."""
    for role in ROLES:
        if isinstance(getattr(report.options, role), int):
            raise UsageError(
                f"{report.path}: {param(role)}: objects have no column numbers; give a key"
            )
    columns: Columns | None = None
    for row in rows:
        if isinstance(row, Problem):
            yield row
            continue
        number, record = row
        if columns is None:
            columns = find_columns(list(record), report, first_object=number)
        absent = [
            key
            for role, keys in columns.places.items()
            if role != "label" or report.need_label
            for key in keys
            if key not in record
        ]
        if absent:
            near = suggestion(absent[0], record)
            yield Problem(number, f"no key {absent[0]!r} among {keys_seen(record)}{near}")
        else:
            yield _values(number, record, columns, list(record) if report.keep_columns else None)


def parquet_values(report: ReadReport) -> Iterator[Values | Problem]:
    """Rows of a Parquet file, of which only the columns asked for are read."""
    if report.path == "-":
        raise UsageError(
            f"{param('format', 'parquet')}: Parquet cannot be read from standard input; name a file"
        )
    if report.path.lower().endswith(".gz"):
        raise UsageError(f"{report.path}: Parquet is compressed within; unpack this file first")
    names = parquet_names(report.path)
    yield from _column_values(names, partial(parquet_rows, report.path), report)


def memory_values(report: ReadReport) -> Iterator[Values | Problem]:
    """The report's rows in memory, of which only the columns asked for are read."""
    memory = report.memory
    assert memory is not None
    if memory.names is None:
        yield from record_values(memory.records(), report)
    else:
        yield from _column_values(memory.names, memory.records, report)


def _column_values(
    names: Sequence[str],
    rows: Callable[[Sequence[str]], Iterator[Record | Problem]],
    report: ReadReport,
) -> Iterator[Values | Problem]:
    """The values of ``rows``, which gives those of some of the columns ``names``."""
    found = find_columns(names, report)
    columns = Columns(found.names, found.names)
    wanted: Sequence[str] = [key for each in columns.names.values() for key in each]
    if report.keep_columns:
        wanted = names
    _check_names(names, wanted, report)
    kept = names if report.keep_columns else None
    for row in rows(wanted):
        yield row if isinstance(row, Problem) else _values(*row, columns, kept)


def line_values(lines: Iterator[Line], report: ReadReport) -> Iterator[Values | Problem]:
    """Formats text (each line is a text, a blank one an empty text) and label-text."""
    if report.format == "text" and report.need_label:
        raise UsageError(
            f"{report.path}: plain text has no labels; give {param('format', 'label-text')}, tsv "
            "or csv"
        )
    for number, raw, problem in lines:
        line = chomp(raw)
        if problem:
            yield Problem(number, problem)
        elif report.format == "text":
            yield number, line, MISSING, MISSING, None
        elif end := next((at for at, char in enumerate(line) if char in " \t"), 0):
            yield number, line[end:].lstrip(" \t"), MISSING, line[:end], None
        else:
            yield Problem(number, "a label, white space and a text are expected")


def _values(number: int, row: Any, columns: Columns, kept: Sequence[str] | None = None) -> Values:
    """The values of a row of cells or of an object, which may lack the keys of labels.

    ``kept`` are the names of all columns, where those that are not the text's are kept.
    """
    places = columns.places
    text_pair = row[places["text_pair"][0]] if "text_pair" in places else MISSING
    label: object = MISSING
    of_label = places.get("label", ())
    if isinstance(row, list) or all(place in row for place in of_label):
        if len(of_label) == 1:
            label = row[of_label[0]]
        elif of_label:
            cells = zip(columns.names["label"], of_label, strict=True)
            label = LabelCells({name: row[place] for name, place in cells})
    text, others = places["text"][0], None
    if kept is not None:
        keys = range(len(kept)) if isinstance(row, list) else kept
        cells = zip(kept, keys, strict=True)
        others = {name: row[key] for name, key in cells if key != text and _has(row, key)}
    return number, row[text], text_pair, label, others


def _has(row: Any, key: Any) -> bool:
    """Rows of cells without a header may be shorter than the first."""
    return not isinstance(row, list) or key < len(row)


def _check_names(names: Sequence[str], wanted: Sequence[str], report: ReadReport) -> None:
    """Raise DataError where several columns have the name of one that is wanted."""
    for key in wanted:
        if names.count(key) > 1:
            raise DataError(f"{report.path}: several columns are named {key!r}; rename them")


def _delimited_columns(first_row: list[str], report: ReadReport) -> Columns:
    report.header = has_header(first_row, report)
    seen = [cell.strip() for cell in first_row] if report.header else len(first_row)
    try:
        columns = find_columns(seen, report)
    except DataError as error:
        separator = report.options.separator(report.format)
        other = next((c for c in "\t;|," if c != separator and c in first_row[0]), None)
        if len(first_row) > 1 or other is None:
            raise
        name, shown = ("tab", "tab") if other == "\t" else (other, repr(other))
        raise DataError(
            f"{error.message}. Is {shown} the delimiter? Then give {param('delimiter', name)}"
        ) from None
    if not report.header and report.options.header is None:
        report.notes.append("no header: the first row is read as data")
    return columns


def _ragged(cells: list[str], width: int, columns: Columns, report: ReadReport) -> str:
    options = report.options
    expected = (
        f"the header has {width}" if report.header else f"column {columns.last()} is asked for"
    )
    quoted = not options.quotes(report.format) and any('"' in cell for cell in cells)
    hint = f"; where quotes enclose cells, give {param('quoting')}" if quoted else ""
    if report.header and len(cells) > width and not (report.num_examples or report.num_problems):
        hint += (
            f"; if the header lacks a name, give {param('skip_rows', options.skip_rows + 1)} "
            f"{param('header', False)} and the columns by number, the first being 0"
        )
    return f"{count_of(len(cells), 'column')} where {expected}{hint}"
