"""Files of questions on texts: SQuAD 1.1 and 2.0 as published, and an object or a row a question.

SQuAD is one object, {"data": [{"title", "paragraphs": [{"context", "qas": [{"id", "question",
"answers": [{"text", "answer_start"}], "is_impossible"}]}]}]}.  Other rows have "question",
"context" and "answers" in any form of ``gold_answers``, tables "answer"; the id may be left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from tidybert.errors import LINE, DataError, UsageError, param
from tidybert.files.annotations import nearest, short
from tidybert.files.columns import plain_name
from tidybert.files.example_reader import ExampleReader
from tidybert.files.formats import FileFormat, FileFormats, source
from tidybert.files.reading import ROLES, ReadOptions, ReadReport
from tidybert.files.records import Nested, json_cursor, nested
from tidybert.files.rows import Problem, count_of, json_type, keys_seen, text_problem
from tidybert.files.text_examples import value_in
from tidybert.storage.json_objects import decoded

Answer = tuple[str, int]
"""A text, and the place in the context, in characters, where it begins."""


class _OneAnswer(msgspec.Struct):
    text: str
    answer_start: int | None = None


class _AnswerLists(msgspec.Struct):
    """The two lists of Hugging Face's datasets."""

    text: list[str]
    answer_start: list[int]


class _Answers(msgspec.Struct):
    """What an object says of its answers; a single one may stand beside its place."""

    is_impossible: bool | None = None
    answers: list[_OneAnswer | str] | _AnswerLists | msgspec.UnsetType = msgspec.UNSET
    answer: str | msgspec.UnsetType | None = msgspec.UNSET
    answer_start: int | None = None
    start: int | None = None

    def given(self) -> Iterator[tuple[str, int | None]]:
        """Text and place of each."""
        if isinstance(self.answers, list):
            for one in self.answers:
                yield (one, None) if isinstance(one, str) else (one.text, one.answer_start)
        elif isinstance(self.answers, _AnswerLists):
            if len(self.answers.text) != len(self.answers.answer_start):
                raise DataError("'answers' needs lists 'text' and 'answer_start' of one length")
            yield from zip(self.answers.text, self.answers.answer_start, strict=True)
        elif self.answer:
            yield self.answer, self.start if self.answer_start is None else self.answer_start


@dataclass(frozen=True, slots=True)
class GoldAnswers:
    """The answers in the order of the file.

    is_impossible: True without answers, else as the file says, None where it does not say.
    num_ambiguous: of those without a place how many the context has more than once.
    moved: by how many characters each was moved that is not where the file says.
    """

    answers: tuple[Answer, ...]
    is_impossible: bool | None
    num_ambiguous: int
    moved: tuple[int, ...] = ()


def gold_answers(record: Mapping[str, object], context: str) -> GoldAnswers:
    """The answers that a question's object holds.

    "answers" is a list of {"text", "answer_start"} or of texts, or an object of the two lists, like
    Hugging Face's datasets.  A single one is in "answer", with "answer_start" or "start" beside it.
    An answer without a place gets the first place that fits, one with a wrong place the nearest.
    No answer at all means, like "is_impossible", that the context has none.  Raises DataError
    without a place.
    """
    names = _Answers.__struct_fields__
    read = decoded(
        {key: record[key] for key in names if key in record}, _Answers, "", error=DataError
    )
    if read.answers is read.answer is msgspec.UNSET and not read.is_impossible:
        raise DataError("no key 'answers', and none 'answer'")
    answers: list[Answer] = []
    moved, num_ambiguous = [], 0
    for text, start in read.given():
        if problem := text_problem("text", text):
            raise DataError(f"an answer's {problem}")
        if not text.strip():
            raise DataError("an answer is an empty text")
        place = nearest(text, start or 0, context)
        if place < 0:
            raise DataError(f"the answer {short(text)} is not in the context")
        if start is None:
            num_ambiguous += context.find(text, place + 1) >= 0
        elif place != start:
            moved.append(abs(place - start))
        answers.append((text, place))
    if answers and read.is_impossible:
        raise DataError(
            f"'is_impossible' is true, but the question has the answer {short(answers[0][0])}"
        )
    if not answers and read.is_impossible is False:
        raise DataError("the question has no answer, but 'is_impossible' is false")
    is_impossible = read.is_impossible if answers else True
    return GoldAnswers(tuple(answers), is_impossible, num_ambiguous, tuple(moved))


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
    columns: Mapping[str, object] | None = field(default=None, repr=False, compare=False)

    @property
    def own_id(self) -> str | None:
        """The id that the file gives; None for a question that only its line names."""
        return None if self.id.partition(" ")[0] == str(self.row) else self.id


@dataclass(frozen=True, slots=True)
class _Raw:
    """A question as the file holds it.

    A question of SQuAD has its paragraph's context, and a name beside the line.  With JSON lines
    the object has everything, and these are None and "".
    """

    row: int
    value: Any
    context: str | None = None
    where: str = ""
    title: str = ""

    def place(self) -> str:
        """Its place, for the message of another question."""
        return f"{self.where} ({LINE} {self.row})" if self.where else f"{LINE} {self.row}"

    def problem(self, message: str) -> Problem:
        return Problem(self.row, f"{self.where}: {message}" if self.where else message)


def _squad(stream: Any, report: ReadReport) -> Iterator[_Raw | Problem]:
    """The questions of SQuAD, or of an array of objects that have all."""
    has_data = False
    with json_cursor(stream, report) as cursor:
        for key in cursor.entries():
            if key is None:
                has_data = True
                yield _Raw(cursor.line, cursor.value())
            elif key == "data" and cursor.peek() == "[":
                has_data = True
                for number, _ in enumerate(cursor.entries(), start=1):
                    yield from _article(nested(cursor, "paragraphs", "qas"), f"article {number}")
            else:
                cursor.value()
        cursor.end()
    if not has_data:
        raise DataError(
            f"{report.path}:1: no list 'data', which in SQuAD holds articles with 'paragraphs'; "
            f"for one question a line give {param('format', 'jsonl')}"
        )


def _article(article: Nested, where: str) -> Iterator[_Raw | Problem]:
    if not isinstance(article.value, dict):
        what = f"{json_type(article.value)} where an object is expected"
        yield Problem(article.row, f"{where}: {what}")
        return
    title = article.value.get("title")
    title = title if isinstance(title, str) else ""
    where += f" ({short(title)})" if title else ""
    if article.items is None:
        yield Problem(article.row, f"{where}: no list 'paragraphs'")
    for number, paragraph in enumerate(article.items or (), start=1):
        at = f"{where}, paragraph {number}"
        if paragraph.items is None:
            yield Problem(paragraph.row, f"{at}: no list 'qas'")
        elif problem := text_problem("context", paragraph.value.get("context")):
            yield Problem(paragraph.row, f"{at}: {problem}")
        else:
            context = paragraph.value["context"]
            for count, one in enumerate(paragraph.items, start=1):
                name = one.value.get("id") if isinstance(one.value, dict) else None
                named = f" (id {short(name)})" if isinstance(name, str) else ""
                yield _Raw(one.row, one.value, context, f"{at}, question {count}{named}", title)


def _judge(head: bytes, report: ReadReport) -> tuple[str, str]:
    if report.path == "-":
        return "jsonl", ""
    if head.lstrip()[:1] not in (b"{", b"["):
        raise UsageError(FORMATS.no_suffix(report.path))
    return "json" if head.lstrip()[:1] == b"[" or b'"paragraphs"' in head else "jsonl", ""


FORMATS: Final = FileFormats(
    "questions",
    ("json", "jsonl", "csv", "tsv", "sheet", "parquet", "arrow"),
    own={"json": FileFormat("SQuAD, or an array of objects", (".json",), "objects", _squad)},
    listed="json (as SQuAD is), jsonl (one object a line), csv, tsv, sheet, parquet or arrow",
    refused=(*ROLES, "label_separator", "header"),
    judge=_judge,
)


def _rows(
    options: ReadOptions, report: ReadReport, *, need_label: bool
) -> Iterator[QuestionExample | Problem]:
    """The questions of a file; answers are read with ``need_label`` alone."""
    places: dict[str, str] = {}
    ambiguous: list[str] = []
    with source(report, FORMATS) as found:
        for row in found.records(report):
            if isinstance(row, Problem):
                yield row
                continue
            raw = row if isinstance(row, _Raw) else _Raw(*row)
            try:
                example = _example(raw, report, ambiguous, of_cells=found.shape == "cells")
                if example.own_id is None and places.get(example.id) == raw.place():
                    # An array may have all its objects in one line.
                    example = replace(example, id=f"{raw.row} ({len(places) + 1})")
                if first := places.get(example.id):
                    raise DataError(f"the id {example.id!r} is already that of {first}")
            except DataError as error:
                yield raw.problem(error.message)
                continue
            places[example.id] = raw.place()
            columns = {**raw.value, "context": example.context} if raw.where else raw.value
            yield replace(example, columns=columns) if report.keep_columns else example
    if ambiguous:
        # All of a published SQuAD file is one line.
        kind = "id" if report.format == "json" else LINE
        shown = ", ".join(ambiguous[:SHOWN_ROWS])
        more = f" and {len(ambiguous) - SHOWN_ROWS:,} more" if len(ambiguous) > SHOWN_ROWS else ""
        report.notes.append(
            f"{count_of(len(ambiguous), 'answer')} without answer_start that the context has more "
            f"than once, of which the first is taken ({kind} {shown}{more})"
        )


def _example(
    raw: _Raw, report: ReadReport, ambiguous: list[str], *, of_cells: bool
) -> QuestionExample:
    """The question that an object holds; ``ambiguous`` gets an ambiguous answer's id or line."""
    record = raw.value
    if not isinstance(record, dict):
        raise DataError(f"{json_type(record)} where an object is expected")
    if raw.context is None and "data" in record and "question" not in record:
        raise DataError(f"this line is a whole SQuAD file; give {param('format', 'json')}")
    if of_cells:
        # Cells are text, and an empty one says nothing but of the answer.
        named = {plain_name(name): cell for name, cell in record.items()}
        if "answer_text" in named and "answer" not in named:
            named["answer"] = named["answer_text"]
        record = {name: cell for name, cell in named.items() if cell or name == "answer"}
        for key in ("answer_start", "start"):
            if record.get(key, "").isdecimal():
                record[key] = int(record[key])
        if (answers := value_in(record.get("answers", ""))) is not None:
            record["answers"] = answers
    given = record if raw.context is None else {**record, "context": raw.context}
    for key in ("question", "context"):
        if key not in given:
            raise DataError(f"no key {key!r} among {keys_seen(given)}")
        if problem := text_problem(key, given[key]):
            raise DataError(problem)
    name = record.get("id")
    if name is None and raw.context is not None:
        raise DataError("no key 'id'")
    if isinstance(name, bool) or not isinstance(name, str | int | None):
        raise DataError(f"'id' is {json_type(name)} where a text is expected")
    if isinstance(name, str) and (problem := text_problem("id", name)):
        raise DataError(problem)
    answers = GoldAnswers((), None, 0)
    if report.need_label:
        answers = gold_answers(given, given["context"])
        ambiguous += [str(raw.row if raw.context is None else name)] * answers.num_ambiguous
        report.moved += answers.moved
    return QuestionExample(
        id=str(raw.row if name is None else name),
        question=given["question"],
        context=given["context"],
        answers=answers.answers,
        is_impossible=answers.is_impossible,
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
