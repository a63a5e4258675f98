"""Tagged sentences in JSON: words with a tag each, or a raw text with the spans of its entities."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final, cast

from tidybert.errors import DataError, param
from tidybert.files.columns import describe_columns
from tidybert.files.raw_rows import Problem, Record
from tidybert.files.read_options import ReadOptions
from tidybert.files.read_report import ReadReport
from tidybert.files.table_cells import MISSING, record_values
from tidybert.files.wording import count_of, json_type, text_problem
from tidybert.metrics.entity_scores import Entity, iob2_tags
from tidybert.tasks.tags.tagged_sentences import Span, TaggedExample, split_text

WORD_KEYS: Final = ("tokens", "words")
TAG_KEYS: Final = ("tags", "ner_tags", "labels")
TEXT_KEY: Final = "text"
SPAN_KEYS: Final = ("entities", "spans")
TYPE_KEYS: Final = ("label", "type")


def record_examples(
    rows: Iterator[Record | Problem], report: ReadReport
) -> Iterator[TaggedExample | Problem]:
    """Objects such as {"tokens": […], "tags": […]} or {"text": …, "entities": [{"start", …}]}.

    Keys that are not given are looked for in the first object, under their common names.
    """
    head: list[Record | Problem] = []
    for row in rows:
        head.append(row)
        if not isinstance(row, Problem):
            report.options = _with_keys(row[0], row[1], report)
            break
    for values in record_values(chain(head, rows), report):
        if isinstance(values, Problem):
            yield values
            continue
        number, content, _, marks, _ = values
        if not report.need_label:
            marks = MISSING
        key = report.columns["text"]
        if isinstance(content, list):
            yield _from_words(number, key, content, marks)
        elif isinstance(content, str):
            problem = text_problem(key, content)
            yield Problem(number, problem) if problem else _from_text(number, content, marks)
        else:
            expected = "where a text or a list of words is expected"
            yield Problem(number, f"{key!r} is {json_type(content)} {expected}")


def _with_keys(number: int, record: Mapping[str, object], report: ReadReport) -> ReadOptions:
    """Options with the keys that no flag gave, guessed from the first object."""

    def first(names: Sequence[str]) -> str | None:
        return next((name for name in names if name in record), None)

    options, need_label = report.options, report.need_label
    text, label = options.text, options.label
    if text is None:
        has_spans = TEXT_KEY in record and first(SPAN_KEYS)
        text = TEXT_KEY if has_spans else first((*WORD_KEYS, TEXT_KEY))
    if label is None and need_label and text is not None:
        is_raw = isinstance(record.get(str(text)), str)
        label = first(SPAN_KEYS if is_raw else TAG_KEYS)
    for flag, found, needed in ((param("text"), text, True), (param("label"), label, need_label)):
        if needed and found is None:
            what = "words or the text" if flag == param("text") else "tags or the entities"
            raise DataError(
                f"{report.place(number)}: cannot tell which key holds the {what}. "
                f"{describe_columns(list(record))}. Give {flag} KEY"
            )
    report.guessed += [
        role
        for role, given, found in (("text", options.text, text), ("label", options.label, label))
        if given is None and found is not None
    ]
    return replace(options, text=text, label=label)


def _from_words(row: int, key: str, words: list[object], tags: object) -> TaggedExample | Problem:
    problem = _not_texts(key, words)
    if problem is None and tags is not MISSING:
        if not isinstance(tags, list):
            problem = f"{json_type(tags)} where a list with a tag for each word is expected"
        elif len(tags) != len(words):
            problem = f"{count_of(len(words), 'word')} and {count_of(len(tags), 'tag')}"
        elif "" in tags:
            problem = f"the tag of word {tags.index('')} is empty (the first word is 0)"
        elif problem := _not_texts("tags", tags):
            problem += "; write the tags' names"
    if problem:
        return Problem(row, problem)
    tags = None if tags is MISSING else tuple(cast(list[str], tags))
    return TaggedExample(tuple(cast(list[str], words)), tags, row)


def _from_text(row: int, text: str, marks: object) -> TaggedExample | Problem:
    words, spans = split_text(text)
    if marks is MISSING:
        return TaggedExample(words, None, row, text, spans)
    if not isinstance(marks, list):
        return Problem(row, f"{json_type(marks)} where a list of entities is expected")
    marked = []
    for number, mark in enumerate(marks):
        found = _marked_span(mark, len(text))
        if isinstance(found, str):
            return Problem(row, f"entity {number}: {found}")
        marked.append(found)
    first_word = {span[0]: number for number, span in enumerate(spans)}
    last_word = {span[1]: number for number, span in enumerate(spans)}
    found_entities = []
    last_end = 0
    for start, end, type_name in sorted(marked):
        shown = f"the entity {text[start:end][:40]!r} ({start} to {end})"
        if start < last_end:
            return Problem(row, f"{shown} overlaps the one before; a word has only one tag")
        last_end = end
        if start not in first_word or end not in last_word:
            return Problem(row, f"{shown} {_misfit(text, spans, start, end)}")
        found_entities.append(Entity(type_name, first_word[start], last_word[end] + 1))
    tags = tuple(iob2_tags(found_entities, len(words)))
    return TaggedExample(words, tags, row, text, spans)


def _marked_span(mark: object, length: int) -> tuple[int, int, str] | str:
    """Start, end and type of one entity, or what is wrong with it."""
    expected = '{"start": …, "end": …, "label": …} is expected'
    if not isinstance(mark, dict):
        return f"{json_type(mark)} where {expected}"
    values = cast(dict[str, object], mark)
    start, end = values.get("start"), values.get("end")
    type_name = next((values[key] for key in TYPE_KEYS if key in values), None)
    if not _is_whole(start) or not _is_whole(end) or not isinstance(type_name, str):
        return f"start, end or label is missing or of another type; {expected}"
    start, end = cast(int, start), cast(int, end)
    if problem := text_problem("label", type_name):
        return problem
    if not type_name.strip():
        return "its label is empty"
    if not 0 <= start < end <= length:
        return f"{start} to {end} is not a part of a text of {count_of(length, 'character')}"
    return start, end, type_name.strip()


def _misfit(text: str, spans: Sequence[Span], start: int, end: int) -> str:
    for at, ends in ((start, "begins"), (end, "ends")):
        for first, last in spans:
            if first < at < last:
                return f"{ends} within the word {text[first:last][:40]!r} ({first} to {last})"
    return "begins or ends at white space, or at a character that is dropped; mark whole words"


def _not_texts(key: str, values: list[object]) -> str | None:
    """What is wrong with the first value that is not a text; None if all are."""
    problems = (text_problem(f"{key}[{place}]", value) for place, value in enumerate(values))
    return next(filter(None, problems), None)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
