"""Files of questions on texts: SQuAD 1.1 and 2.0 as published, and one question a line of JSON.

SQuAD is one object, {"data": [{"title", "paragraphs": [{"context", "qas": [{"id", "question",
"answers": [{"text", "answer_start"}], "is_impossible"}]}]}]}.  A line is {"id", "question",
"context", "answers"} with the answers in any form of ``gold_answers``; the id may be left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidybert.errors import LINE, DataError, param
from tidybert.files.example_reader import ExampleReader
from tidybert.files.file_formats import TABLE_FLAGS, FileFormats, refuse_flags
from tidybert.files.json_entries import JsonCursor, json_cursor
from tidybert.files.raw_rows import Problem
from tidybert.files.read_options import ROLES, ReadOptions
from tidybert.files.read_report import ReadReport
from tidybert.files.records import json_records
from tidybert.files.text_lines import open_bytes
from tidybert.files.wording import count_of, json_type, keys_seen, text_problem
from tidybert.tasks.questions.gold_answers import Answer, AnswerError, gold_answers, short

FORMATS: Final = FileFormats(
    "questions",
    ("json", "jsonl"),
    {".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl"},
    "json (as SQuAD is) or jsonl (one object a line)",
)
SHOWN_ROWS: Final = 5


@dataclass(frozen=True, slots=True)
class QuestionExample:
    """A question, the text that answers it, and the right answers where the file has them.

    ``is_impossible`` is None where the file does not say, ``title`` that of the SQuAD article, and
    ``row`` the 1-based line of the file.
    """

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...] = ()
    is_impossible: bool | None = None
    row: int = 0
    title: str = ""

    @property
    def own_id(self) -> str | None:
        """The id that the file gives; None for a question that only its line names."""
        return None if self.id == str(self.row) else self.id


@dataclass(frozen=True, slots=True)
class _Raw:
    """A question as the file holds it.

    A question of SQuAD has its paragraph's context, and a name beside the line.  With JSON lines
    the object has everything, and these are None and "".
    """

    row: int
    value: object
    context: str | None = None
    where: str = ""
    title: str = ""

    def place(self) -> str:
        """Its place, for the message of another question."""
        return f"{self.where} ({LINE} {self.row})" if self.where else f"{LINE} {self.row}"

    def problem(self, message: str) -> Problem:
        return Problem(self.row, f"{self.where}: {message}" if self.where else message)


def _rows(
    options: ReadOptions, report: ReadReport, *, need_label: bool
) -> Iterator[QuestionExample | Problem]:
    """The questions of a file.

    The suffix gives the format, .gz apart: .json is SQuAD's, .jsonl and .ndjson are an object a
    line, and so is standard input without ``options.format``.  Answers are read with ``need_label``
    alone.
    """
    if report.memory is None:
        report.format = FORMATS.of(report.path, options) or "jsonl"
    refuse_flags(report, *ROLES, "label_separator", *TABLE_FLAGS)
    places: dict[str, str] = {}
    ambiguous: list[str] = []
    for raw in _raw_questions(report):
        if isinstance(raw, Problem):
            yield raw
            continue
        example = _example(raw, ambiguous, need_label=need_label)
        if isinstance(example, QuestionExample):
            if first := places.get(example.id):
                example = raw.problem(f"the id {example.id!r} is already that of {first}")
            else:
                places[example.id] = raw.place()
        yield example
    if ambiguous:
        # All of a published SQuAD file is one line.
        kind = "id" if report.format == "json" else LINE
        shown = ", ".join(ambiguous[:SHOWN_ROWS])
        more = f" and {len(ambiguous) - SHOWN_ROWS:,} more" if len(ambiguous) > SHOWN_ROWS else ""
        report.notes.append(
            f"{count_of(len(ambiguous), 'answer')} without answer_start that the context has more "
            f"than once, of which the first is taken ({kind} {shown}{more})"
        )


def _raw_questions(report: ReadReport) -> Iterator[_Raw | Problem]:
    if report.memory is not None:
        for row in report.memory.records():
            yield row if isinstance(row, Problem) else _Raw(*row)
        return
    with open_bytes(report.path) as stream:
        if report.format == "json":
            with json_cursor(stream, report.options.codec(), report.path) as cursor:
                yield from _squad_questions(cursor, report.path)
            return
        for row in json_records(stream, report.options, report):
            yield row if isinstance(row, Problem) else _Raw(*row)


def _squad_questions(cursor: JsonCursor, path: str) -> Iterator[_Raw | Problem]:
    has_data = False
    for key in cursor.entries():
        if key != "data" or cursor.peek() != "[":
            cursor.value()
            continue
        has_data = True
        for number, _ in enumerate(cursor.entries(), start=1):
            yield from _article(cursor, f"article {number}")
    cursor.end()
    if not has_data:
        raise DataError(
            f"{path}:1: no list 'data', which in SQuAD holds articles with 'paragraphs'; for one "
            f"question a line give {param('format', 'jsonl')}"
        )


def _article(cursor: JsonCursor, where: str) -> Iterator[_Raw | Problem]:
    """The questions of one article, once all of it is read: its title may come last."""
    row, title = cursor.line, ""
    if cursor.peek() != "{":
        yield Problem(row, f"{where}: {json_type(cursor.value())} where an object is expected")
        return
    paragraphs: list[_Paragraph] | None = None
    for key in cursor.entries():
        if key == "paragraphs" and cursor.peek() == "[":
            paragraphs = [_paragraph(cursor) for _ in cursor.entries()]
        else:
            value = cursor.value()
            title = value if key == "title" and isinstance(value, str) else title
    if title:
        where += f" ({short(title)})"
    if paragraphs is None:
        yield Problem(row, f"{where}: no list 'paragraphs'")
        return
    for number, paragraph in enumerate(paragraphs, start=1):
        at = f"{where}, paragraph {number}"
        problem = text_problem("context", paragraph.context)
        if paragraph.questions is None:
            problem = "no list 'qas'"
        if problem:
            yield Problem(paragraph.row, f"{at}: {problem}")
            continue
        for count, (line, value) in enumerate(paragraph.questions or (), start=1):
            name = value.get("id") if isinstance(value, dict) else None
            named = f" (id {short(name)})" if isinstance(name, str) else ""
            place = f"{at}, question {count}{named}"
            yield _Raw(line, value, str(paragraph.context), place, title)


@dataclass(slots=True)
class _Paragraph:
    """Questions are values with their lines; None without a list of them."""

    row: int
    context: object = None
    questions: list[tuple[int, Any]] | None = None


def _paragraph(cursor: JsonCursor) -> _Paragraph:
    paragraph = _Paragraph(cursor.line)
    if cursor.peek() != "{":
        cursor.value()
        return paragraph
    for key in cursor.entries():
        if key == "qas" and cursor.peek() == "[":
            paragraph.questions = [(cursor.line, cursor.value()) for _ in cursor.entries()]
            continue
        value = cursor.value()
        if key == "context":
            paragraph.context = value
    return paragraph


def _example(raw: _Raw, ambiguous: list[str], *, need_label: bool) -> QuestionExample | Problem:
    """The question that an object holds; ``ambiguous`` gets an ambiguous answer's id or line."""
    record = raw.value
    if not isinstance(record, dict):
        return raw.problem(f"{json_type(record)} where an object is expected")
    if raw.context is None and "data" in record and "question" not in record:
        return raw.problem(f"this line is a whole SQuAD file; give {param('format', 'json')}")
    given = record if raw.context is None else {**record, "context": raw.context}
    for key in ("question", "context"):
        if key not in given:
            return raw.problem(f"no key {key!r} among {keys_seen(given)}")
        if problem := text_problem(key, given[key]):
            return raw.problem(problem)
    name = record.get("id")
    if name is None and raw.context is not None:
        return raw.problem("no key 'id'")
    if isinstance(name, bool) or not isinstance(name, str | int | None):
        return raw.problem(f"'id' is {json_type(name)} where a text is expected")
    if isinstance(name, str) and (problem := text_problem("id", name)):
        return raw.problem(problem)
    answers: tuple[Answer, ...] = ()
    is_impossible = None
    if need_label:
        try:
            found = gold_answers(given, given["context"])
        except AnswerError as error:
            return raw.problem(str(error))
        place = raw.row if raw.context is None else name
        ambiguous += [str(place)] * found.num_ambiguous
        answers, is_impossible = found.answers, found.is_impossible
    return QuestionExample(
        id=str(raw.row if name is None else name),
        question=given["question"],
        context=given["context"],
        answers=answers,
        is_impossible=is_impossible,
        row=raw.row,
        title=raw.title,
    )


def _tuple_names(first: Sequence[object]) -> Sequence[str]:
    """The columns of rows (question, context, answers)."""
    if len(first) not in (2, 3):
        raise DataError(
            f"a row has {count_of(len(first), 'value')}: expected (question, context, answers)"
        )
    return ("question", "context", "answers")[: len(first)]


read_questions = ExampleReader(_rows, FORMATS, _tuple_names)
