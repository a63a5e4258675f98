"""Files of questions on texts: SQuAD 1.1 and 2.0 as published, and one question a line of JSON.

SQuAD is one object, {"data": [{"title", "paragraphs": [{"context", "qas": [{"id", "question",
"answers": [{"text", "answer_start"}], "is_impossible"}]}]}]}.  A line is {"id", "question",
"context", "answers"} with the answers in any form of ``gold_answers``; the id may be left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidybert.errors import LINE, DataError, param
from tidybert.files.example_reader import TABLE_FLAGS, ExampleReader, FileFormats, refuse_flags
from tidybert.files.reading import ROLES, ReadOptions, ReadReport
from tidybert.files.records import JsonCursor, json_cursor, json_records
from tidybert.files.rows import Problem, count_of, json_type, keys_seen, text_problem
from tidybert.files.text_lines import open_bytes

# The right answers of a question, in the forms that files have them, each checked at its place.

SHOWN_PLACES: Final = 3
SHOWN_TEXT: Final = 60

Answer = tuple[str, int]
"""A text, and the place in the context, in characters, where it begins."""


class AnswerError(Exception):
    """Why the answers cannot be taken; for the reader, which knows the line."""


@dataclass(frozen=True, slots=True)
class GoldAnswers:
    """The answers in the order of the file.

    is_impossible: True without answers, else as the file says, None where it does not say.
    num_ambiguous: of those without a place how many the context has more than once.
    """

    answers: tuple[Answer, ...]
    is_impossible: bool | None
    num_ambiguous: int


def gold_answers(record: Mapping[str, object], context: str) -> GoldAnswers:
    """The answers that a question's object holds.

    "answers" is a list of {"text", "answer_start"} or of texts, or an object of the two lists, like
    Hugging Face's datasets.  A single one is in "answer", with "answer_start" or "start" beside it.
    An answer without a place gets the first place that fits.  No answer at all means, like
    "is_impossible", that the context has none.
    """
    impossible = record.get("is_impossible")
    if impossible is not None and not isinstance(impossible, bool):
        raise AnswerError(
            f"'is_impossible' is {json_type(impossible)} where true or false is expected"
        )
    if "answers" not in record and "answer" not in record and not impossible:
        raise AnswerError("no key 'answers', and none 'answer'")
    answers = []
    num_ambiguous = 0
    for text, start in _given(record):
        if start is None and context.find(text, context.find(text) + 1) >= 0:
            num_ambiguous += 1
        answers.append((text, _place(text, start, context)))
    if answers and impossible:
        raise AnswerError(
            f"'is_impossible' is true, but the question has the answer {short(answers[0][0])}"
        )
    if not answers and impossible is False:
        raise AnswerError("the question has no answer, but 'is_impossible' is false")
    return GoldAnswers(tuple(answers), impossible if answers else True, num_ambiguous)


def short(text: str) -> str:
    """A text as a message shows it."""
    return repr(text if len(text) <= SHOWN_TEXT else text[: SHOWN_TEXT - 1] + "…")


def _given(record: Mapping[str, object]) -> Iterator[tuple[str, int | None]]:
    """Text and place of each answer."""
    for one in _given_list(record):
        answer = {"text": one} if isinstance(one, str) else one
        if not isinstance(answer, dict):
            raise AnswerError(f"an answer is {json_type(one)} where an object is expected")
        text, start = answer.get("text"), answer.get("answer_start")
        if problem := text_problem("text", text):
            raise AnswerError(f"an answer's {problem}")
        if not isinstance(text, str) or not text.strip():
            raise AnswerError("an answer is an empty text")
        if start is not None and (isinstance(start, bool) or not isinstance(start, int)):
            raise AnswerError(
                f"'answer_start' is {json_type(start)} where a whole number is expected"
            )
        yield text, start


def _given_list(record: Mapping[str, object]) -> list[object]:
    given = record.get("answers")
    if "answers" not in record:
        text = record.get("answer")
        start = record.get("answer_start", record.get("start"))
        return [] if text in (None, "") else [{"text": text, "answer_start": start}]
    if isinstance(given, dict):
        texts, starts = given.get("text"), given.get("answer_start")
        if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
            raise AnswerError("'answers' needs lists 'text' and 'answer_start' of one length")
        return [
            {"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)
        ]
    if not isinstance(given, list):
        raise AnswerError(f"'answers' is {json_type(given)} where a list is expected")
    return given


def _place(text: str, start: int | None, context: str) -> int:
    """Where an answer begins; AnswerError where the context does not have it there."""
    found = context.find(text)
    if found < 0:
        raise AnswerError(f"the answer {short(text)} is not in the context")
    if start is None:
        return found
    if start >= 0 and context.startswith(text, start):
        return start
    places: list[str] = []
    while found >= 0 and len(places) <= SHOWN_PLACES:
        places.append(str(found))
        found = context.find(text, found + 1)
    shown = ", ".join(places[:SHOWN_PLACES]) + (", …" if len(places) > SHOWN_PLACES else "")
    there = context[start : start + len(text)] if start >= 0 else ""
    raise AnswerError(
        f"the answer {short(text)} is not at character {start}, where the context has "
        f"{short(there) if there else 'nothing'}; it is at {shown}"
    )


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
