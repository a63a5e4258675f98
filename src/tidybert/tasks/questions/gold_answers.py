"""The right answers of a question, in the forms that files have them, each checked at its place."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tidybert.files.wording import json_type, text_problem

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

    Raises AnswerError for another form, an answer that is not at its place, and "is_impossible"
    that contradicts the answers.
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
