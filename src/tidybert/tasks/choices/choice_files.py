"""Files of questions with choices: SWAG's CSV, CODAH's columns, and JSON lines.

SWAG (Zellers et al. 2018) continues a context by one of four endings: ``sent1`` is the context and
``sent2`` the beginning that each ending continues.  CODAH (Chen et al. 2019) gives a prompt and
four endings that complete it.  JSON lines may have any number of choices, and another one in each.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from typing import Any, Final, cast

from tidybert.errors import DataError, UsageError
from tidybert.files.columns import describe_columns
from tidybert.files.example_reader import ExampleReader, FileFormats, refuse_flags
from tidybert.files.reading import ROLES, ReadOptions, ReadReport
from tidybert.files.records import CellsRow, delimited_rows, json_records
from tidybert.files.rows import Problem, count_of, json_type, keys_seen, text_problem
from tidybert.files.text_examples import canonical_label, finite_number
from tidybert.files.text_lines import NUL_BYTE, open_bytes

FORMATS: Final = FileFormats("choices", ("swag", "codah", "jsonl"), {})
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
    """

    context: str
    start: str
    choices: tuple[str, ...]
    label: int | None
    row: int

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
    """The rows of a file.

    Without ``options.format`` the first line decides: ``{`` begins JSON lines, SWAG has its header
    and CODAH tabs.  A row without a right answer has no label.
    """
    path = report.path
    if report.memory is not None:
        refuse_flags(report, *ROLES, "label_separator")
        for row in report.memory.records():
            yield row if isinstance(row, Problem) else _json_example(*row, need_label)
        return
    with open_bytes(path) as stream:
        head = stream.peek(1).decode(options.codec(), "ignore").removeprefix("\ufeff")
        if "\0" in head:
            raise DataError(f"{path}:1: {NUL_BYTE}")
        if options.format is None:
            report.guess_format(_format_of(head, path), "the first line")
        else:
            report.format = options.format
        refuse_flags(report, *ROLES, "label_separator", "header")
        if report.format == "jsonl":
            refuse_flags(report, "delimiter", "quoting", "skip_rows")
            for row in json_records(stream, options, report):
                yield row if isinstance(row, Problem) else _json_example(*row, need_label)
            return
        if report.format == "swag":
            yield from _swag_rows(delimited_rows(stream, "csv", report), report)
        else:
            yield from _codah_rows(delimited_rows(stream, "tsv", report), report)


def _format_of(head: str, path: str) -> str:
    """The format that a file's first line shows."""
    line = head.lstrip().partition("\n")[0]
    if not line:
        raise DataError(f"{path}: it holds no example; is it the right file?")
    if line.startswith("{"):
        return "jsonl"
    if "ending0" in line:
        return "swag"
    if "\t" in line:
        return "codah"
    raise UsageError(f"{path}: the first line does not tell the format; {FORMATS.advice()}")


def _swag_rows(
    rows: Iterator[CellsRow | Problem], report: ReadReport
) -> Iterator[ChoiceExample | Problem]:
    places: dict[str, int] = {}
    width = 0
    for row in rows:
        if isinstance(row, Problem):
            if not places:
                raise DataError(f"{report.path}:{row.row}: {row.message}")
            yield row
            continue
        number, cells = row
        if not places:
            places, width = _swag_columns(cells, report), len(cells)
        elif len(cells) != width:
            what = f"{count_of(len(cells), 'column')} where the header has {width}"
            yield Problem(number, what)
        else:
            choices = [cells[at] for name, at in places.items() if name.startswith("ending")]
            label = _number(cells[places["label"]]) if "label" in places else None
            context, start = cells[places["sent1"]], cells[places["sent2"]]
            yield choice_example(
                number, context, start, choices, label, need_label=report.need_label
            )


def _swag_columns(header: list[str], report: ReadReport) -> dict[str, int]:
    """Each name's place, the endings in their order."""
    names, need_label = [name.strip() for name in header], report.need_label
    endings: list[str] = []
    while (name := f"ending{len(endings)}") in names:
        endings.append(name)
    needed = ["sent1", "sent2", *(endings or ["ending0"]), *(["label"] if need_label else [])]
    missing = [name for name in needed if names.count(name) != 1]
    if missing:
        what = "several columns are" if missing[0] in names else "no column is"
        raise DataError(f"{report.path}:1: {what} named {missing[0]!r}. {describe_columns(names)}")
    report.header = True
    wanted = [*needed, *(["label"] if not need_label and names.count("label") == 1 else [])]
    return {name: names.index(name) for name in wanted}


def _codah_rows(
    rows: Iterator[CellsRow | Problem], report: ReadReport
) -> Iterator[ChoiceExample | Problem]:
    bare = 2 + CODAH_ENDINGS
    for row in rows:
        if isinstance(row, Problem):
            yield row
            continue
        number, cells = row
        if len(cells) != bare + 1 and (report.need_label or len(cells) != bare):
            yield Problem(
                number,
                f"{count_of(len(cells), 'column')} where {bare + 1} are expected: category, "
                f"prompt, {CODAH_ENDINGS} endings, the answer's number",
            )
        else:
            label = _number(cells[bare]) if len(cells) > bare else None
            yield choice_example(
                number, cells[1], "", cells[2:bare], label, need_label=report.need_label
            )


def _json_example(row: int, record: dict[str, Any], need_label: bool) -> ChoiceExample | Problem:
    if "ending0" in record and "endings" not in record:
        # SWAG's columns, in a frame.
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
            return Problem(row, f"none of the keys {known} among {keys_seen(record)}")
    absent: tuple[object, ...] = ("", "", [], None)
    context, start, choices, label = (
        record[keys[0]] if keys else default
        for keys, default in zip(found.values(), absent, strict=True)
    )
    if not isinstance(choices, list):
        key = found["choices"][0]
        return Problem(row, f"{key!r} is {json_type(choices)} where a list of texts is expected")
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
