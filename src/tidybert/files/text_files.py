"""Files of labelled texts as a stream of TextExample: csv, tsv, JSON lines, JSON, Parquet, lines.

Memory is constant for every format but json.  Nothing is dropped silently: a row that cannot be
read is an error with file and line, or, with ``skip_bad_rows``, counted and named in the report.
"""

from collections.abc import Iterator
from pathlib import Path

from tidybert.errors import DataError, UsageError, param
from tidybert.files import formats, records, table_cells
from tidybert.files.columns import ROLES
from tidybert.files.formats import Problem
from tidybert.files.label_sets import labels_of
from tidybert.files.read_options import FORMATS, PUBLISHED_LAYOUTS, SUFFIXES, ReadOptions
from tidybert.files.table_cells import MISSING, LabelCells, Values
from tidybert.files.text_examples import (
    ReadReport,
    TextExample,
    canonical_label,
    finite_number,
    good_rows,
    json_type,
    label_names,
    text_problem,
)

__all__ = [
    "PUBLISHED_LAYOUTS",
    "Problem",
    "ReadOptions",
    "ReadReport",
    "TextExample",
    "label_names",
    "read_examples",
]


def read_examples(
    path: str | Path,
    options: ReadOptions | None = None,
    *,
    need_label: bool,
    scores: bool = False,
    multi_label: bool = False,
    skip_bad_rows: bool = False,
    report: ReadReport | None = None,
) -> Iterator[TextExample]:
    """Read a file, or standard input for "-", as a stream of examples in the file's order.

    ``need_label`` makes a row without a label a bad row, and ``scores`` one whose label is no
    finite number, so that ``float(example.label)`` is safe.  ``multi_label`` reads any number of
    labels, see ``label_sets``, into ``example.labels``.  Without ``skip_bad_rows`` nothing is
    yielded after the first bad row; the rest of the file is read to count them all, except on
    standard input, which may never end.  ``report`` is filled on the way; the columns and what was
    guessed stand in it from the first example on.

    Standard input without a format is JSON lines where its first byte is ``{``, else plain lines.

    Raises DataError for a file that is missing, empty, damaged or has bad rows, with file and line,
    and UsageError for options that do not fit the file's format.
    """
    options = options or ReadOptions()
    report = ReadReport() if report is None else report
    report.path = str(path)
    if options.label_separator is not None and not multi_label:
        raise UsageError(
            f"{param('label_separator')} has a meaning with {param('multi_label')} alone"
        )
    examples = _examples(
        options, report, need_label=need_label, scores=scores, multi_label=multi_label
    )
    yield from good_rows(examples, report, skip_bad_rows=skip_bad_rows)


def _examples(
    options: ReadOptions, report: ReadReport, *, need_label: bool, scores: bool, multi_label: bool
) -> Iterator[TextExample | Problem]:
    separator = options.between_labels() if multi_label else None
    never_true: set[str] | None = None
    for values in _rows(options, report, need_label=need_label):
        if isinstance(values, Problem):
            yield values
            continue
        row = _example(values, separator, report, need_label=need_label, scores=scores)
        if isinstance(row, TextExample) and isinstance(values[3], LabelCells):
            never_true = set(values[3].cells) if never_true is None else never_true
            never_true.difference_update(row.labels or ())
        yield row
    if never_true:
        names = ", ".join(sorted(never_true))
        report.notes.append(f"true in no row, so that no text has the label: {names}")


def _rows(
    options: ReadOptions, report: ReadReport, *, need_label: bool
) -> Iterator[Values | Problem]:
    path = report.path
    report.format = options.format or _format_of(path)
    if report.format and report.format not in FORMATS:
        raise UsageError(
            f"{path}: {param('format', report.format)}: texts are read from {', '.join(FORMATS)}"
        )
    if report.format == "parquet":
        refuse_flags(options, report, "header", "delimiter", "quoting")
        yield from table_cells.parquet_values(options, report, need_label=need_label)
        return
    with formats.open_bytes(path) as stream:
        if not report.format:
            report.format = "jsonl" if stream.peek(1)[:1] == b"{" else "text"
            report.guessed.append("format")
            report.notes.append(
                f"read as {param('format', report.format)}, judged by the first byte"
            )
        lines = formats.decoded_lines(stream, options.encoding, path)
        if report.format in ("csv", "tsv"):
            separator = options.separator(report.format)
            quotes = options.quotes(report.format)
            split = formats.quoted_rows if quotes else formats.unquoted_rows
            yield from table_cells.delimited_values(
                split(lines, separator), options, report, need_label=need_label
            )
            return
        refuse_flags(options, report, "header", "delimiter", "quoting")
        if report.format in ("text", "label-text"):
            refuse_flags(options, report, *ROLES)
            yield from table_cells.line_values(lines, report, need_label=need_label)
            return
        entries: Iterator[records.ValueRow | Problem] = (
            records.json_line_rows(lines)
            if report.format == "jsonl"
            else records.json_file_rows(stream, options.encoding, path)
        )
        yield from table_cells.record_values(entries, options, report, need_label=need_label)


def _format_of(path: str) -> str:
    """The format that a file's suffix tells; nothing for standard input, which has none."""
    if path == "-":
        return ""
    name = Path(path).name.lower()
    suffix = Path(name.removesuffix(".gz")).suffix
    if Path(path).is_dir():
        raise DataError(f"{path}: it is a folder; name a file in it")
    if suffix not in SUFFIXES:
        raise UsageError(
            f"{path}: the suffix {suffix!r} does not tell the format; give {param('format')}, one "
            f"of {', '.join(FORMATS)}"
        )
    if suffix == ".parquet" and name.endswith(".gz"):
        raise UsageError(f"{path}: Parquet is compressed within; unpack this file first")
    return SUFFIXES[suffix]


def refuse_flags(options: ReadOptions, report: ReadReport, *names: str) -> None:
    """Raise UsageError where one of these is given, which the report's format has no use for."""
    for name in names:
        if getattr(options, name) is not None:
            raise UsageError(
                f"{report.path}: {param(name)} has no meaning for {param('format', report.format)}"
                + (f"; is another {param('format')} meant?" if name in ROLES else "")
            )


def _example(
    values: Values, separator: str | None, report: ReadReport, *, need_label: bool, scores: bool
) -> TextExample | Problem:
    """A row's example; with a ``separator`` of labels, it may have any number of them."""
    row, text, text_pair, raw_label = values
    for role, value in (("text_pair", text_pair), ("text", text)):
        if value is MISSING:
            continue
        if problem := text_problem(report.columns.get(role, role), value):
            return Problem(row, problem)
    assert isinstance(text, str)
    pair = text_pair if isinstance(text_pair, str) else None
    if separator is not None:
        labels = labels_of(raw_label, separator)
        if not isinstance(labels, str):
            return TextExample(text, pair, None, row, labels)
        return Problem(row, labels) if need_label else TextExample(text, pair, None, row)
    if isinstance(raw_label, LabelCells):
        raise UsageError(
            f"{param('label')} {report.columns['label']} names several columns; they are read with "
            f"{param('multi_label')} alone"
        )
    label = None if raw_label is MISSING else canonical_label(raw_label)
    if need_label and label is None:
        empty = raw_label is None or (isinstance(raw_label, str) and not raw_label.strip())
        what = "empty" if empty else f"{json_type(raw_label)}, and a text or a number is expected"
        return Problem(row, f"the label is {what}")
    if scores and need_label and label is not None and finite_number(label) is None:
        return Problem(
            row,
            f"the score {label[:40]!r} is no finite number; is {report.columns.get('label', '')!r} "
            f"the right {param('label')}? (the first column is 0)",
        )
    return TextExample(text, pair, label, row)
