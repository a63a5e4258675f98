"""Files of labelled texts as a stream of TextExample: csv, tsv, JSON lines, JSON, Parquet, lines.

Memory is constant for every format but json.  Nothing is dropped silently: a row that cannot be
read is an error with file and line, or, with ``skip_bad_rows``, counted and named in the report.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from tidybert.errors import DataError, UsageError, param
from tidybert.files.columns import (
    FASTTEXT_LABEL,
    MISSING,
    LabelCells,
    Values,
    column_values,
    delimited_values,
    line_values,
    record_values,
)
from tidybert.files.example_reader import ExampleReader
from tidybert.files.formats import FileFormats, source
from tidybert.files.label_rows import last_records, last_rows, text_columns
from tidybert.files.reading import ReadOptions, ReadReport
from tidybert.files.rows import Problem, count_of, finite_number, json_type, text_problem
from tidybert.files.text_examples import (
    WORDS,
    TextExample,
    canonical_label,
    form_of,
    labels_of,
    object_in,
    plain_form,
    soft_label,
    true_names,
    width_of_flags,
)
from tidybert.storage.limits import CELL_CHARACTERS, LABELS


def _judge(head: bytes, report: ReadReport) -> tuple[str, str]:
    if head.lstrip()[:1] not in (b"{", b"["):
        return "text", "the first byte"
    # A short line alone may hold all, as a line of many does not.
    return "jsonl" if report.path == "-" or b"\n" in head.strip() else "json", "the first byte"


FORMATS: Final = FileFormats(
    "texts",
    ("csv", "tsv", "sheet", "jsonl", "json", "parquet", "arrow", "folder", "text", "label-text"),
    judge=_judge,
)
SUFFIXES: Final = FORMATS.suffixes


def _examples(
    options: ReadOptions,
    report: ReadReport,
    *,
    need_label: bool,
    scores: bool = False,
    multi_label: bool = False,
    soft: bool = False,
    need_text: bool = False,
) -> Iterator[TextExample | Problem]:
    if options.label_separator is not None and not multi_label:
        raise UsageError(
            f"{param('label_separator')} has a meaning only with {param('multi_label')}"
        )
    separator = options.between_labels() if multi_label else None
    never_true: set[str] | None = None
    # A model's names, such as 1.0, by their plain forms, and by themselves.
    known = {plain_form(one) or one.removeprefix(FASTTEXT_LABEL): one for one in report.known}
    known |= {one: one for one in report.known}
    found = text_values(report, scores=scores, multi_label=multi_label, soft=soft)
    for values in _with_points(list(found), report) if scores and need_label else found:
        if isinstance(values, Problem):
            yield values
            continue
        share = soft_label(values[3]) if soft else None
        if isinstance(share, str):
            yield Problem(values[0], share)
            continue
        if share is not None:
            values = (*values[:3], max(share, key=share.__getitem__), values[4])
        elif type(label := object_in(values[3])) in (list, dict):
            label = true_names(label)
            if separator is None and isinstance(label, list) and len(label) == 1:
                # So labelling tools export the one label of a text.
                label = label[0]
            values = (*values[:3], label, values[4])
        row = text_example(values, report, separator=separator, scores=scores)
        if share is not None and isinstance(row, TextExample):
            row = replace(row, soft=share)
        if known and isinstance(row, TextExample) and row.label:
            name = known.get(row.label) or known.get(plain_form(row.label) or "")
            row = replace(row, label=name or row.label)
        if isinstance(row, TextExample) and not scores:
            if row.label is not None:
                report.keep_label(row.label, values[3])
            for each in values[3] if isinstance(values[3], list) else row.labels or ():
                report.keep_label(canonical_label(each) or "", each)
        if isinstance(row, TextExample) and row.drawn is not None:
            report.drawn[row.drawn] += 1
        if need_label and isinstance(row, TextExample) and isinstance(values[3], LabelCells):
            never_true = set(values[3].cells) if never_true is None else never_true
            never_true.difference_update(row.labels or ())
        if isinstance(row, TextExample) and not f"{row.text}{row.text_pair or ''}".strip():
            if need_text:
                row = Problem(row.row, "the text is blank", is_fault=False)
            else:
                report.num_blank += 1
        yield row
    if never_true:
        names = ", ".join(sorted(never_true))
        report.notes.append(f"true in no row, so that no text has the label: {names}")


def text_values(
    report: ReadReport, *, scores: bool = False, multi_label: bool = False, soft: bool = False
) -> Iterator[Values | Problem]:
    """The values of each row of the report's file, or of its rows in memory."""
    with source(report, FORMATS) as found:
        if found.shape == "cells":
            counting = last_rows(found.rows, report, keeps_none=multi_label)
            rows = delimited_values(counting, report)
        elif found.shape == "columns" and not text_columns(found.rows[0]):
            rows = column_values(found.rows[0], found.rows[1], report)
        elif found.shape == "lines":
            rows = line_values(found.rows, report)
        else:
            records = last_records(found.records(report), report, keeps_none=multi_label)
            rows = record_values(records, report)
        is_meant = report.need_label and not (scores or soft)
        yield from _as_meant(rows, report) if is_meant else rows


def _as_meant(rows: Iterator[Values | Problem], report: ReadReport) -> Iterator[Values | Problem]:
    """The rows with labels as all of them together show them: lists, flags, whole numbers.

    Rows are held back only from the first on that may be read otherwise than it is written.
    """
    held: list[tuple[Values | Problem, Any]] = []
    kind, seen = "", dict[str, Any]()
    for row in rows:
        label = None if isinstance(row, Problem) else row[3]
        value = seen.get(label) if type(label) is str else None
        if value is None:
            form, value = form_of(label)
            kind = kind or form
            # A model's own spelling counts for numbers; lists of JSON need no other reading.
            is_settled = kind == WORDS or bool(report.known and kind not in ("", "lists"))
            is_settled |= isinstance(label, list) and not (held or width_of_flags(label))
            if is_settled or form not in ("", kind):
                yield from (each for each, _ in held)
                yield row
                yield from rows
                return
            if type(label) is str and len(seen) < LABELS.value:
                seen[label] = value
        if held or value != label or (type(value) is list and width_of_flags(value)):
            held.append((row, value))
        else:
            yield row
    widths = {width_of_flags(value) for _, value in held if isinstance(value, list)}
    are_flags = len(widths) == 1 and 0 not in widths
    if are_flags:
        report.notes.append("labels are lists of 0 and 1: each 1 is the label of its place, from 0")
    elif held:
        shown = next(str(row[3])[:40] for row, value in held if row[3] != value)  # type: ignore
        report.notes.append(f"labels such as {shown!r} are read as {kind}")
    for row, value in held:
        if are_flags and isinstance(value, list):
            value = [str(at) for at, flag in enumerate(value) if flag]
        yield row if isinstance(row, Problem) else (*row[:3], value, row[4])


_DECIMAL_COMMA: Final = re.compile(r"\s*[+-]?[0-9]+(,[0-9]+)?\s*")
_THOUSANDS: Final = re.compile(r"\s*[+-]?[1-9][0-9]{0,2},[0-9]{3}\s*")


def _with_points(
    rows: Sequence[Values | Problem], report: ReadReport
) -> Iterator[Values | Problem]:
    """Rows whose scores have a decimal point, where each has a comma or is whole.

    1,000 may be a thousand: one score at least has to show that commas are decimal.
    """
    scores = [str(row[3]) for row in rows if not isinstance(row, Problem) and row[3] != ""]
    commas = [one for one in scores if "," in one]
    if all(map(_DECIMAL_COMMA.fullmatch, scores)) and not all(map(_THOUSANDS.fullmatch, commas)):
        report.notes.append(f"scores with a decimal comma, such as {commas[0][:40]!r}")
    else:
        commas = []
    for row in rows:
        if commas and not isinstance(row, Problem) and isinstance(row[3], str):
            row = (*row[:3], row[3].replace(",", "."), row[4])
        yield row


def text_example(
    values: Values, report: ReadReport, *, separator: str | None = None, scores: bool = False
) -> TextExample | Problem:
    """A row's example; with a ``separator`` of labels, it may have any number of them."""
    row, text, text_pair, raw_label, columns = values
    texts = {"text": text} if text_pair is MISSING else {"text_pair": text_pair, "text": text}
    for role, value in texts.items():
        if problem := text_problem(report.columns.get(role, role), value):
            return Problem(row, problem)
        assert isinstance(value, str)
        if len(value) > CELL_CHARACTERS.value:
            return Problem(row, CELL_CHARACTERS.error(f"{len(value):,}", repr(role)).message)
    assert isinstance(text, str)
    pair = text_pair if isinstance(text_pair, str) else None
    if separator is not None:
        labels = labels_of(raw_label, separator)
        if not isinstance(labels, str):
            return TextExample(text, pair, None, row, labels, columns)
        return (
            Problem(row, labels)
            if report.need_label
            else TextExample(text, pair, None, row, columns=columns)
        )
    if isinstance(raw_label, LabelCells) and report.need_label:
        raise UsageError(
            f"{param('label')} {report.columns['label']} names several columns; they are read with "
            f"{param('multi_label')} or {param('soft')} alone"
        )
    label = None if raw_label is MISSING else canonical_label(raw_label)
    if report.need_label and label is None:
        # A model has chosen already how many labels a text has.
        may_choose = not (scores or report.known)
        if isinstance(raw_label, list) and len(raw_label) > 1:
            more = f"; {param('multi_label', True)} reads any number of them" if may_choose else ""
            return Problem(row, f"it has {len(raw_label):,} labels{more}")
        empty = raw_label in (None, []) or (isinstance(raw_label, str) and not raw_label.strip())
        what = "empty" if empty else f"{json_type(raw_label)}, and a text or a number is expected"
        is_soft = isinstance(raw_label, dict) and may_choose
        more = f"; {param('soft', True)} reads probabilities of classes" if is_soft else ""
        return Problem(row, f"the label is {what}{more}")
    if scores and report.need_label and label is not None and finite_number(label) is None:
        return Problem(
            row,
            f"the score {label[:40]!r} is not a finite number; is "
            f"{report.columns.get('label', '')!r} the right {param('label')}? (the first column is "
            "0)",
        )
    return TextExample(text, pair, label, row, columns=columns)


def _tuple_names(first: Sequence[object]) -> Sequence[str]:
    """The columns of rows (text, label), (text, text_pair, label) or (text,)."""
    found = {1: ("text",), 2: ("text", "label"), 3: ("text_a", "text_b", "label")}
    if len(first) not in found:
        raise DataError(
            f"a row has {count_of(len(first), 'value')}: expected (text, label), or for pairs "
            "(text, text_pair, label)"
        )
    return found[len(first)]


def _soft_examples(
    options: ReadOptions, report: ReadReport, *, need_label: bool
) -> Iterator[TextExample | Problem]:
    """An example a text, whose label is the mean of those of its rows, such as of annotators."""
    report.counts_votes = need_label
    of_text: dict[tuple[str, str | None], list[TextExample]] = {}
    for row in _examples(options, report, need_label=need_label, soft=need_label):
        if isinstance(row, Problem) or not need_label:
            yield row
        else:
            of_text.setdefault((row.text, row.text_pair), []).append(row)
    several = [len(rows) for rows in of_text.values() if len(rows) > 1]
    if several:
        report.notes.append(
            f"{sum(several):,} rows are of {count_of(len(several), 'text')} with several: a text "
            "has the mean of its labels"
        )
    for rows in of_text.values():
        shares: Counter[str] = Counter()
        for one in rows:
            for name, share in (one.soft or {one.label or "": 1.0}).items():
                shares[name] += share / len(rows)  # type: ignore[assignment]
        likeliest = max(shares, key=shares.__getitem__)
        yield replace(rows[0], label=likeliest, soft=dict(shares))


read_examples = ExampleReader(_examples, FORMATS, _tuple_names)
"""Reads texts.

The detail ``scores`` makes a row whose label is not a finite number a bad row, so that
``float(example.label)`` is safe.  ``multi_label`` reads any number of labels, see ``labels_of``,
into ``example.labels``.  ``keep_columns`` keeps the other columns of a row in ``example.columns``.
``need_text`` leaves blank texts out, and the report counts them.
Standard input without a format is JSON lines where its first byte is ``{``, else plain lines.
"""
read_soft_examples = ExampleReader(_soft_examples, FORMATS, _tuple_names)
"""Reads texts whose labels may be probabilities, in ``example.soft``; see ``soft_label``."""
