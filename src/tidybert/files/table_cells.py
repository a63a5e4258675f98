"""The rows of each format as (row number, text, second text, label), their columns chosen.

Each function fills the report on the way.  A role without a column is MISSING, so that it is not
mistaken for a null in the file.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from tidybert.errors import DataError, UsageError, param
from tidybert.files.columns import (
    ROLES,
    Columns,
    describe_columns,
    find_columns,
    guess_columns,
    has_header,
    label_parts,
    suggest,
)
from tidybert.files.delimited_rows import CellsRow
from tidybert.files.read_options import ReadOptions
from tidybert.files.read_report import Problem, ReadReport
from tidybert.files.records import Record, parquet_names, parquet_rows
from tidybert.files.text_lines import Line, chomp
from tidybert.files.wording import count_of, keys_seen

MISSING: Final = object()

# A row's number, its text, second text and label as the file holds them.
Values = tuple[int, object, object, object]
# The names of each role's columns; the label may have several.
Keys = dict[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class LabelCells:
    """The cells of a row's label columns, by the columns' names."""

    cells: dict[str, object]


def delimited_values(
    rows: Iterator[CellsRow | Problem],
    options: ReadOptions,
    report: ReadReport,
    *,
    need_label: bool,
) -> Iterator[Values | Problem]:
    """Rows of csv and tsv; with a header each must be as wide as it.

    Without one a row must reach the last column asked for, and rows of another width than the first
    are noted (some published files carry extra columns on some rows).
    """
    columns: Columns | None = None
    label_names: tuple[str, ...] = ()
    width = ragged = first_ragged = 0
    lone_label: str | None = None
    for row in rows:
        if isinstance(row, Problem):
            if columns is None and options.header is not False:
                raise DataError(f"{report.path}:{row.row}: {row.message}")
            yield row
            continue
        number, cells = row
        if columns is None:
            width = len(cells)
            columns = _delimited_columns(cells, options, report, need_label=need_label)
            names = [cell.strip() for cell in cells] if report.header else None
            label_names = _keys(columns, names).get("label", ())
            if report.header:
                continue
            if options.header is None and columns.label is not None:
                lone_label = cells[columns.label]
        else:
            if len(cells) != width:
                if report.header or len(cells) <= columns.last():
                    yield Problem(number, _ragged(cells, width, columns, options, report))
                    continue
                ragged += 1
                first_ragged = first_ragged or number
            if columns.label is not None and cells[columns.label] == lone_label:
                lone_label = None
        yield (
            number,
            cells[columns.text],
            MISSING if columns.text_pair is None else cells[columns.text_pair],
            _label_of(cells, columns, label_names),
        )
    if ragged:
        report.notes.append(
            f"{count_of(ragged, 'row')} of another width than the first (line {first_ragged} is "
            "one); only the columns asked for are read"
        )
    if lone_label is not None and report.num_examples > 1:
        report.notes.append(
            f"the first row's label {lone_label[:40]!r} is in no other row; if that row names "
            f"the columns, give {param('header')}"
        )


def record_values(
    rows: Iterator[Record | Problem],
    options: ReadOptions,
    report: ReadReport,
    *,
    need_label: bool,
) -> Iterator[Values | Problem]:
    """Rows of JSON: keys given are looked up in each object, others guessed from the first."""
    for role in ROLES:
        if isinstance(getattr(options, role), int):
            raise UsageError(
                f"{report.path}: {param(role)}: JSON has no column numbers; give a key"
            )
    keys: Keys = {}
    for row in rows:
        if isinstance(row, Problem):
            yield row
            continue
        number, record = row
        if not keys:
            keys = _record_keys(number, list(record), options, report, need_label=need_label)
        needed = [names for role, names in keys.items() if role != "label" or need_label]
        absent = [key for names in needed for key in names if key not in record]
        if absent:
            near = suggest(absent[0], list(record))
            yield Problem(number, f"no key {absent[0]!r} among {keys_seen(record)}{near}")
            continue
        yield number, *_fields(record, keys)


def parquet_values(
    options: ReadOptions, report: ReadReport, *, need_label: bool
) -> Iterator[Values | Problem]:
    """Rows of a Parquet file, of which only the columns asked for are read."""
    if report.path == "-":
        raise UsageError(
            f"{param('format', 'parquet')}: Parquet cannot be read from standard input; name a file"
        )
    if report.path.lower().endswith(".gz"):
        raise UsageError(f"{report.path}: Parquet is compressed within; unpack this file first")
    names = parquet_names(report.path)
    columns = find_columns(options, names, len(names), need_label=need_label, path=report.path)
    _note_columns(report, options, columns, names)
    keys = _keys(columns, names)
    wanted = [key for each in keys.values() for key in each]
    for key in wanted:
        if names.count(key) > 1:
            raise DataError(f"{report.path}: several columns are named {key!r}; rename them")
    for number, record in parquet_rows(report.path, wanted):
        yield number, *_fields(record, keys)


def line_values(
    lines: Iterator[Line], report: ReadReport, *, need_label: bool
) -> Iterator[Values | Problem]:
    """Formats text (each line is a text, a blank one an empty text) and label-text."""
    if report.format == "text" and need_label:
        raise UsageError(
            f"{report.path}: plain text has no labels; give {param('format', 'label-text')}, tsv "
            "or csv"
        )
    for number, raw, problem in lines:
        line = chomp(raw)
        if problem:
            yield Problem(number, problem)
        elif report.format == "text":
            yield number, line, MISSING, MISSING
        elif end := next((at for at, char in enumerate(line) if char in " \t"), 0):
            yield number, line[end:].lstrip(" \t"), MISSING, line[:end]
        else:
            yield Problem(number, "a label, white space and a text are expected")


def _delimited_columns(
    first_row: list[str], options: ReadOptions, report: ReadReport, *, need_label: bool
) -> Columns:
    path, width = report.path, len(first_row)
    report.header = has_header(options, first_row, need_label, path)
    names = [cell.strip() for cell in first_row] if report.header else None
    try:
        columns = find_columns(options, names, width, need_label=need_label, path=path)
    except DataError as error:
        separator = options.separator(report.format)
        other = next((c for c in "\t;|," if c != separator and c in first_row[0]), None)
        if width > 1 or other is None:
            raise
        name = "tab" if other == "\t" else other
        shown = name if name == "tab" else repr(name)
        raise DataError(
            f"{error.message}. Is {shown} the delimiter? Then give {param('delimiter', name)}"
        ) from None
    _note_columns(report, options, columns, names)
    if not report.header and options.header is None:
        report.notes.append("no header: the first row is read as data")
    return columns


def _record_keys(
    row: int, names: list[str], options: ReadOptions, report: ReadReport, *, need_label: bool
) -> Keys:
    keys: Keys = {
        role: (str(key),) for role in ROLES if (key := getattr(options, role)) is not None
    }
    if "label" in keys and keys["label"][0] not in names:
        keys["label"] = tuple(map(str, label_parts(keys["label"][0])))
    given = [key for each in keys.values() for key in each]
    taken = [at for at, name in enumerate(names) if name in given]
    guesses = guess_columns(options, names, taken)
    for role in ("text", "label") if need_label else ("text",):
        if role not in keys and role not in guesses:
            raise DataError(
                f"{report.path}:{row}: cannot tell which key holds the {role}. "
                f"{describe_columns(names, len(names))}. Give {param(role)} KEY"
            )
    guessed = [names[at] for at in guesses.values()]
    if len({*given, *guessed}) < len(given) + len(guessed):
        raise UsageError(
            f"{report.path}: {param('text')}, {param('text_pair')} and {param('label')} must name "
            "different keys"
        )
    keys |= {role: (names[at],) for role, at in guesses.items()}
    report.columns = {role: ",".join(keys[role]) for role in ROLES if role in keys}
    report.guessed += [role for role in ROLES if role in guesses]
    return keys


def _fields(record: dict[str, Any], keys: Keys) -> tuple[object, object, object]:
    text, text_pair, label = (
        record.get(keys[role][0], MISSING) if role in keys else MISSING for role in ROLES
    )
    if len(names := keys.get("label", ())) > 1:
        cells = {name: record[name] for name in names if name in record}
        label = LabelCells(cells) if len(cells) == len(names) else MISSING
    return text, text_pair, label


def _label_of(cells: list[str], columns: Columns, label_names: tuple[str, ...]) -> object:
    if columns.labels:
        named = zip(label_names, columns.labels, strict=True)
        return LabelCells({name: cells[at] for name, at in named})
    return MISSING if columns.label is None else cells[columns.label]


def _keys(columns: Columns, names: list[str] | None) -> Keys:
    """The columns' names by role; their numbers where the file has no names."""
    places = {
        "text": (columns.text,),
        "text_pair": () if columns.text_pair is None else (columns.text_pair,),
        "label": columns.labels if columns.label is None else (columns.label,),
    }
    return {
        role: tuple(str(at) if names is None else names[at] for at in each)
        for role, each in places.items()
        if each
    }


def _ragged(
    cells: list[str], width: int, columns: Columns, options: ReadOptions, report: ReadReport
) -> str:
    expected = (
        f"the header has {width}" if report.header else f"column {columns.last()} is asked for"
    )
    quoted = not options.quotes(report.format) and any('"' in cell for cell in cells)
    hint = f"; where quotes enclose cells, give {param('quoting')}" if quoted else ""
    return f"{count_of(len(cells), 'column')} where {expected}{hint}"


def _note_columns(
    report: ReadReport, options: ReadOptions, columns: Columns, names: list[str] | None
) -> None:
    report.guessed += columns.guessed
    for role, each in _keys(columns, names).items():
        report.columns[role] = ",".join(each)
    if options.label is not None and columns.label is None and not columns.labels:
        report.notes.append(f"no column {param('label', options.label)}; read without labels")
