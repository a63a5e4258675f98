"""Files of questions with choices: SWAG's CSV, CODAH's columns, and JSON lines.

SWAG (Zellers et al. 2018) continues a context by one of four endings: ``sent1`` is the context and
``sent2`` the beginning that each ending continues.  CODAH (Chen et al. 2019) gives a prompt and
four endings that complete it.  JSON lines may have any number of choices, and another one in each.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, takewhile
from typing import Any, Final, cast

from tidybert.errors import DataError, UsageError
from tidybert.files.columns import describe_columns
from tidybert.files.example_reader import ExampleReader
from tidybert.files.formats import FileFormats, source
from tidybert.files.reading import ROLES, ReadOptions, ReadReport
from tidybert.files.records import CellsRow
from tidybert.files.rows import (
    Problem,
    Record,
    count_of,
    finite_number,
    json_type,
    keys_seen,
    text_problem,
)
from tidybert.files.text_examples import canonical_label
from tidybert.files.text_lines import NUL_BYTE, utf16_mark_of

CODAH_ENDINGS: Final = 4

# The keys of JSON lines that mean the same; a question beside a context is what choices answer.
_KEYS: Final = {
    "context": ("context", "prompt", "sent1", "question"),
    "start": ("start", "sent2"),
    "choices": ("choices", "endings"),
    "label": ("label", "answer"),
}


@dataclass(frozen=True, slots=True)
class ChoiceExample:
    """A context and its choices, of which one is right.

    Args:
        context: what the choices have in common, read before them.
        start: what each choice continues, or the question that it answers; may be empty.
        choices: two texts at least.
        label: the number of the right one, from 0, where the file has it.
        row: the 1-based line of the file.
        columns: of the file, where they are kept.
    """

    context: str
    start: str
    choices: tuple[str, ...]
    label: int | None
    row: int
    columns: Mapping[str, object] | None = field(default=None, repr=False, compare=False)

    def continued(self) -> list[str]:
        """Each choice as the model reads it after the context."""
        return [f"{self.start} {choice}" if self.start else choice for choice in self.choices]


def choice_example(
    row: int,
    context: object,
    start: object,
    choices: Sequence[object],
    answer: object,
    *,
    need_label: bool,
) -> ChoiceExample | Problem:
    """An example of these values, or what is wrong with them.

    ``answer`` is the number of the right choice, from 0, or its text.
    """
    named = [("context", context), ("start", start)]
    named += [(f"choice {number}", choice) for number, choice in enumerate(choices)]
    for name, value in named:
        if problem := text_problem(name, value):
            return Problem(row, problem)
    texts = cast(list[str], list(choices))
    if len(texts) < 2:
        return Problem(row, f"{count_of(len(texts), 'choice')}; two at least are needed")
    blank = [number for number, text in enumerate(texts) if not text.strip()]
    if blank:
        return Problem(row, f"choice {blank[0]} (the first is 0) is empty")
    label = _index_of(answer, texts)
    if isinstance(label, str) and need_label:
        return Problem(row, label)
    return ChoiceExample(
        cast(str, context),
        cast(str, start),
        tuple(texts),
        None if isinstance(label, str) else label,
        row,
    )


def _index_of(answer: object, choices: Sequence[str]) -> int | str:
    """The number of the right choice, or why none can be found."""
    if isinstance(answer, str) and choices.count(answer) == 1:
        return choices.index(answer)
    if answer is None or answer == "":
        return "the answer is missing"
    if isinstance(answer, str) and answer in choices:
        return f"the answer {answer[:40]!r} is the text of several choices; give its number"
    number = (
        None if isinstance(answer, str | bool) else finite_number(canonical_label(answer) or "")
    )
    if number is None or not number.is_integer():
        shown = repr(answer[:40]) if isinstance(answer, str) else json_type(answer)
        return f"the answer is {shown}; give the number of a choice, from 0, or the text of one"
    if not 0 <= number < len(choices):
        return f"the answer is {number:.0f}; the choices are numbered from 0 to {len(choices) - 1}"
    return int(number)


def _rows(
    options: ReadOptions, report: ReadReport, *, need_label: bool
) -> Iterator[ChoiceExample | Problem]:
    """The rows of a file; a row without a right answer has no label."""
    with source(report, FORMATS) as found:
        of_cells = found.shape == "cells"
        is_codah = report.format == "codah"
        rows = _codah_records(found.rows, report) if is_codah else found.records(report)
        for row in rows:
            if isinstance(row, Problem):
                yield row
                continue
            made = _example(row[0], row[1], report, of_cells)
            if report.keep_columns and not isinstance(made, Problem):
                made = replace(made, columns=row[1])
            yield made


def _judge(head: bytes, report: ReadReport) -> tuple[str, str]:
    """The format that a file's first line shows."""
    path = report.path
    text = head.decode(utf16_mark_of(head) or report.options.codec(), "ignore")
    line = text.removeprefix("\ufeff").lstrip().partition("\n")[0]
    if "\0" in line:
        raise DataError(f"{path}:1: {NUL_BYTE}")
    if not line:
        raise DataError(f"{path}: it holds no example; is it the right file?")
    for begins, name in (("{", "jsonl"), ("[", "json")):
        if line.startswith(begins):
            return name, "the first line"
    if "ending0" in line:
        return "swag", "the first line"
    if "\t" in line:
        return "codah", "the first line"
    raise UsageError(f"{path}: the first line does not tell the format; {FORMATS.advice()}")


def _codah_records(
    rows: Iterator[CellsRow | Problem], report: ReadReport
) -> Iterator[Record | Problem]:
    bare = 2 + CODAH_ENDINGS
    for row in rows:
        if isinstance(row, Problem):
            yield row
        elif len(row[1]) != bare + 1 and (report.need_label or len(row[1]) != bare):
            yield Problem(
                row[0],
                f"{count_of(len(row[1]), 'column')} where {bare + 1} are expected (category, "
                f"prompt, {CODAH_ENDINGS} endings, the answer's number)",
            )
        else:
            category, prompt, *others = row[1]
            content = {"category": category, "prompt": prompt, "endings": others[:CODAH_ENDINGS]}
            yield row[0], content | dict(zip(("answer",), others[CODAH_ENDINGS:], strict=False))


FORMATS: Final = FileFormats(
    "choices",
    ("swag", "codah", "jsonl", "json", "sheet", "parquet", "arrow"),
    refused=(*ROLES, "label_separator", "header"),
    judge=_judge,
    every=True,
)


def _example(
    row: int, record: dict[str, Any], report: ReadReport, of_cells: bool
) -> ChoiceExample | Problem:
    need_label = report.need_label
    if "ending0" in record and "endings" not in record:
        # SWAG's columns.
        endings = takewhile(record.__contains__, map("ending{}".format, count()))
        record = {**record, "endings": [record[name] for name in endings]}
    found = {role: [key for key in keys if key in record] for role, keys in _KEYS.items()}
    if len(found["context"]) == 2 and found["context"][1] == "question" and not found["start"]:
        found["start"] = [found["context"].pop()]
    for role, keys in found.items():
        if len(keys) > 1:
            return Problem(row, f"both {keys[0]!r} and {keys[1]!r}; give one of them")
        if not keys and (role in ("context", "choices") or (role == "label" and need_label)):
            known = ", ".join(_KEYS[role])
            if of_cells and report.header:
                columns = describe_columns(list(record))
                raise DataError(f"{report.path}: no column is named any of {known}. {columns}")
            return Problem(row, f"none of the keys {known} among {keys_seen(record)}")
    absent: tuple[object, ...] = ("", "", [], None)
    context, start, choices, label = (
        record[keys[0]] if keys else default
        for keys, default in zip(found.values(), absent, strict=True)
    )
    if not isinstance(choices, list):
        key = found["choices"][0]
        return Problem(row, f"{key!r} is {json_type(choices)} where a list of texts is expected")
    if of_cells and isinstance(label, str):
        label = _number(label)
    return choice_example(row, context, start, choices, label, need_label=need_label)


def _number(cell: str) -> object:
    """The number that a cell spells, else the cell: a number in it is an index, never a text."""
    number = finite_number(cell)
    return cell.strip() if number is None else number


def _tuple_names(first: Sequence[object]) -> Sequence[str]:
    """The columns of rows (context, choices, label)."""
    if len(first) not in (2, 3):
        raise DataError(
            f"a row has {count_of(len(first), 'value')}: expected (context, choices, number of the "
            "right one)"
        )
    return ("context", "choices", "label")[: len(first)]


read_choices = ExampleReader(_rows, FORMATS, _tuple_names)
