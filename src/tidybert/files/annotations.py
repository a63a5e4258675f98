"""What labelling tools export: spans over texts in one form with one check, and their files.

Label Studio's JSON has ``data`` and ``annotations``, Argilla's ``fields`` and ``responses``;
doccano's has [start, end, label]; brat has a .ann beside each .txt
(https://brat.nlplab.org/standoff.html).  All become plain objects: the text, "entities" with spans,
"label" with what was chosen.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from tidybert.errors import DataError, param
from tidybert.files.folders import folder_names, read_text_file, without_links
from tidybert.files.reading import ReadReport
from tidybert.files.rows import Problem, Record, count_of, json_type, text_problem
from tidybert.files.text_examples import canonical_label
from tidybert.storage.json_objects import decoded

SHOWN_TEXT: Final = 60
# The keys that tools have for the same.
_KEYS: Final = {
    "start": ("start", "start_offset"),
    "end": ("end", "end_offset"),
    "label": ("label", "type", "labels"),
    "text": ("text",),
}
_OF_SPAN: Final = ("start", "end", "labels", "text")
_BRAT: Final = re.compile(r"T[^\t]*\t(\S+) ([0-9]{1,9}) ([0-9]{1,9})(?:\t(.*?))?\r?")


class Span(msgspec.Struct, frozen=True):
    """A part of a text, in characters, and its label; ``text``: that part, where the file says."""

    start: int
    end: int
    label: str
    text: str | None = None


def short(text: str) -> str:
    """A text as a message shows it."""
    return repr(text if len(text) <= SHOWN_TEXT else text[: SHOWN_TEXT - 1] + "…")


def nearest(part: str, start: int, text: str) -> int:
    """Where ``text`` has ``part`` nearest to ``start``; -1 if nowhere."""
    if start >= 0 and text.startswith(part, start):
        return start
    before = text.rfind(part, 0, max(start, 0) + len(part))
    after = text.find(part, max(start, 0))
    found = [at for at in (before, after) if at >= 0]
    return min(found, key=lambda at: abs(at - start), default=-1)


def span_in(text: str, mark: object, report: ReadReport) -> Span:
    """A span as a tool gives it, taken where the text has what the span says that it covers.

    Raises DataError without a place.
    """
    if isinstance(mark, list) and len(mark) == 3:
        mark = dict(zip(("start", "end", "label"), mark, strict=True))
    if not isinstance(mark, dict):
        expected = '{"start": …, "end": …, "label": …} or [start, end, label] is expected'
        raise DataError(f"{json_type(mark)} where {expected}")
    values = {
        ours: mark[name]
        for ours, names in _KEYS.items()
        if (name := next((one for one in names if one in mark), None)) is not None
    }
    labels = values.get("label")
    if isinstance(labels, list):
        if len(labels) != 1:
            raise DataError(f"it has {count_of(len(labels), 'label')}; one is expected")
        values["label"] = labels[0]
    span = decoded(values, Span, "", error=DataError)
    if problem := text_problem("label", span.label):
        raise DataError(problem)
    if not span.label.strip():
        raise DataError("its label is empty")
    start, end = span.start, span.end
    if span.text and text[max(start, 0) : end].split() != span.text.split():
        at = nearest(span.text, start, text)
        if at < 0:
            raise DataError(f"its text {short(span.text)} is not in the text")
        report.moved.append(abs(at - start))
        start, end = at, at + len(span.text)
    if not 0 <= start < end <= len(text):
        length = count_of(len(text), "character")
        raise DataError(f"{start} to {end} is not a part of a text of {length}")
    return Span(start, end, span.label.strip())


def plain_record(number: int, record: dict[str, Any], report: ReadReport) -> Record | Problem:
    """An object of JSON; a task of Label Studio or a record of Argilla as the object that it says.

    Predictions and suggestions are no gold, and neither is what annotators skipped or discarded.
    """
    data = record.get("data", record.get("fields"))
    if not isinstance(data, dict):
        return number, record
    responses = record.get("responses")
    if not any(isinstance(record.get(one), list) for one in ("annotations", "predictions")):
        if not isinstance(responses, dict):
            return number, {**data, **record}
        given, found = _argilla_answers(responses)
    else:
        given = [one for one in record.get("annotations") or () if isinstance(one, dict)]
        done = [one for one in given if not one.get("was_cancelled")]
        try:
            chosen = [one for one in done if one.get("ground_truth")] or done
            report.beside_gold += len(done) - len(chosen) if report.need_label else 0
            found = [_label_studio_result(one.get("result")) for one in chosen]
        except DataError as error:
            return Problem(number, error.message)
    if report.need_label and given and not found:
        return Problem(number, "its annotators skipped it", is_fault=False)
    if report.counts_votes:
        found = [_votes(found)] if found else []
    elif report.need_label and (other := next((one for one in found if one != found[0]), None)):
        name = next(each for each in found[0] | other if found[0].get(each) != other.get(each))
        first, second = (short(str(one.get(name))) for one in (found[0], other))
        of_task = f", of task {record['id']}" if "id" in record else ""
        return Problem(
            number,
            f"{len(found)} annotations that differ, {first} and {second}{of_task}; keep one for "
            f"each task, or count those of a class as votes ({param('soft', True)})",
        )
    return number, {**data, **(found[0] if found else {"entities": None, "label": None})}


def _votes(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """By question the answer of all annotators, or how many gave each class."""
    said: dict[str, Any] = {}
    for name in dict.fromkeys(name for one in found for name in one):
        given = [one[name] for one in found if one.get(name) not in (None, [])]
        alone = [each[0] if isinstance(each, list) and len(each) == 1 else each for each in given]
        classes = [canonical_label(each) for each in alone]
        if name == "entities" or all(each == alone[0] for each in alone):
            said[name] = given[0] if given else found[0].get(name)
        elif None in classes:
            # Whoever reads it as a class says what is wrong with it.
            said[name] = alone[classes.index(None)]
        else:
            said[name] = Counter(classes)
    return said


def _argilla_answers(responses: dict[str, Any]) -> tuple[list[Any], list[dict[str, Any]]]:
    """All responses of a record, and of each annotator who submitted the values by question."""
    given: list[Any] = []
    found: dict[str, dict[str, Any]] = {}
    for name, each in responses.items():
        for place, one in enumerate(each if isinstance(each, list) else ()):
            given.append(one)
            if isinstance(one, dict) and one.get("status", "submitted") == "submitted":
                key = "label" if len(responses) == 1 else name
                found.setdefault(str(one.get("user_id", place)), {})[key] = one.get("value")
    return given, list(found.values())


def _label_studio_result(result: object) -> dict[str, Any]:
    """The spans and the choices of one annotation; choices of several questions by their names."""
    if not isinstance(result, list):
        raise DataError(f"'result' is {json_type(result)} where a list is expected")
    spans: list[object] = []
    chosen: dict[str, list[Any]] = {}
    for each in result:
        value = each.get("value") if isinstance(each, dict) else None
        if isinstance(value, dict) and "labels" in value:
            spans.append({key: each for key, each in value.items() if key in _OF_SPAN})
        elif isinstance(value, dict) and isinstance(value.get("choices"), list):
            chosen.setdefault(str(each.get("from_name")), []).extend(value["choices"])
    label = {"label": next(iter(chosen.values()), None)}
    return {"entities": sorted(spans, key=str), **(chosen if len(chosen) > 1 else label)}


def brat_records(path: str, report: ReadReport) -> Iterator[Record | Problem]:
    """The documents of a .ann file, or of a folder of them, each with the .txt beside it."""
    paths = [Path(path)]
    if paths[0].is_dir():
        names = [name for name in folder_names(path) if name.endswith(".ann")]
        names = without_links(path, names, report)
        texts = without_links(path, [f"{name[:-4]}.txt" for name in names], report)
        report.files = [f"{name[:-4]}.ann" for name in texts]
        paths = [Path(path, name) for name in report.files]
    else:
        without_links(paths[0].parent, [paths[0].with_suffix(".txt").name], report)
    others = bare = 0
    for number, file in enumerate(paths, start=1):
        try:
            text = read_text_file(file.with_suffix(".txt"), report)
            lines = read_text_file(file, report).split("\n")
        except DataError as error:
            yield Problem(number, error.message)
            continue
        marks = []
        problem = None
        for at, line in enumerate(lines, start=1):
            if found := _BRAT.fullmatch(line):
                label, start, end, part = found.groups()
                marks.append({"label": label, "start": int(start), "end": int(end), "text": part})
            elif line.startswith("T"):
                expected = "a tab, a label, one start and one end are expected"
                problem = problem or f"{file}:{at}: {expected}; a word has only one tag"
            else:
                others += bool(line.strip())
        bare += not marks and not problem
        record = {"text": text, "entities": marks, "file": file.name}
        yield Problem(number, problem) if problem else (number, record)
    if bare:
        report.notes.append(f"{count_of(bare, 'document')} without a span: without entities")
    if others:
        report.notes.append(
            f"{count_of(others, 'line')} of relations, events, attributes or notes not read"
        )
