"""Files of tagged sentences: CoNLL columns, JSON with words and tags or with spans, plain text.

CoNLL files are as the shared tasks published them (Tjong Kim Sang and De Meulder 2003): a word a
line, its tag in the last column, a blank line after each sentence, -DOCSTART- before a document.
Whatever scheme the tags of entities are in, examples have them in IOB2.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from tidybert.errors import LINE, DataError, UsageError, param
from tidybert.files.example_reader import ExampleReader
from tidybert.files.file_formats import TABLE_FLAGS, FileFormats, refuse_flags
from tidybert.files.raw_rows import Problem
from tidybert.files.read_options import ReadOptions
from tidybert.files.read_report import ReadReport
from tidybert.files.records import json_records
from tidybert.files.text_lines import Line, chomp, decoded_lines, open_bytes
from tidybert.files.wording import count_of
from tidybert.tasks.tags.tag_records import record_examples
from tidybert.tasks.tags.tagged_sentences import TaggedExample, as_iob2, kind_of, untagged

SUFFIXES: Final = {
    ".conll": "conll",
    ".iob": "conll",
    ".iob2": "conll",
    ".bio": "conll",
    ".tsv": "conll",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
}
FORMATS: Final = FileFormats("tagged sentences", ("conll", "jsonl", "json", "text"), SUFFIXES)
DOCUMENT_START: Final = "-DOCSTART-"

# A column; only spaces and tabs separate them, for a no-break space can be a word.
_CELL: Final = re.compile(r"[^ \t]+")


def _rows(
    options: ReadOptions, report: ReadReport, *, need_label: bool, of_entities: bool | None = None
) -> Iterator[TaggedExample | Problem]:
    """The sentences of a file; in CoNLL columns a bad row is a sentence.

    With ``need_label`` the whole file is read first: only all tags together show what they mark
    (``report.notes`` says what), or at least their scheme, if ``of_entities`` says whether they
    mark entities.  Without it tags are not looked at, and memory is constant for every format but
    json.  So a file ending in .txt holds CoNLL columns with it, and a raw text a line without.
    Standard input is JSON lines where its first byte is ``{``, else the same.
    """
    rows = _rows_of_file(report)
    return _with_kind(list(rows), report, of_entities) if need_label else rows


def _rows_of_file(report: ReadReport) -> Iterator[TaggedExample | Problem]:
    options = report.options
    if report.memory is not None:
        refuse_flags(report, "text_pair", "label_separator")
        yield from record_examples(report.memory.records(), report)
        return
    plain = "conll" if report.need_label else "text"
    formats = replace(FORMATS, suffixes={**SUFFIXES, ".txt": plain})
    report.format = formats.of(report.path, options)
    with open_bytes(report.path) as stream:
        if not report.format:
            is_json = stream.peek(1)[:1] == b"{"
            report.guess_format("jsonl" if is_json else plain, "the first byte")
        refuse_flags(report, "text_pair", "label_separator", *TABLE_FLAGS)
        if report.format in ("json", "jsonl"):
            yield from record_examples(json_records(stream, options, report), report)
            return
        lines = decoded_lines(stream, options.codec(), report.path)
        if report.format == "conll":
            yield from _conll_sentences(lines, report)
        else:
            refuse_flags(report, "text", "label")
            yield from _raw_texts(lines, report)


def _conll_sentences(
    lines: Iterator[Line], report: ReadReport
) -> Iterator[TaggedExample | Problem]:
    need_label = report.need_label
    width = first_line = documents = 0
    word_column, tag_column = 0, -1
    start = 0
    words: list[str] = []
    tags: list[str] = []
    bad: list[Problem] = []
    for number, raw, problem in chain(lines, [(0, "", None)]):
        cells = _CELL.findall(chomp(raw))
        if problem is None and (not cells or cells[0] == DOCUMENT_START):
            documents += bool(cells)
            if bad:
                yield _sentence_problem(bad)
            elif words:
                yield TaggedExample(tuple(words), tuple(tags) if need_label else None, start)
            words, tags, bad = [], [], []
            continue
        if not words and not bad:
            start = number
        if problem is None and not width:
            width, first_line = len(cells), number
            word_column, tag_column = _columns(width, number, report)
        if problem is None and len(cells) != width:
            problem = f"{count_of(len(cells), 'column')} where line {first_line} has {width}"
            if not need_label:
                problem += f"; for a raw text a line give {param('format', 'text')}"
        if problem is None:
            words.append(cells[word_column])
            tags.append(cells[tag_column])
        else:
            bad.append(Problem(number, problem))
    if documents:
        report.notes.append(f"{count_of(documents, 'line')} of {DOCUMENT_START} passed over")


def _columns(width: int, line: int, report: ReadReport) -> tuple[int, int]:
    """The columns of the word and of its tag, as given or the first and the last."""
    need_label = report.need_label
    if need_label and width == 1:
        raise DataError(
            f"{report.path}:{line}: one column where a word and its tag are expected, with spaces "
            f"or a tab between them; is the {param('format')} right?"
        )
    found = {"text": 0, "label": width - 1}
    for role in found if need_label else ("text",):
        given = getattr(report.options, role)
        recorded = report.recorded.get(role, "")
        if given is None and recorded.isdecimal() and int(recorded) < width:
            found[role] = int(recorded)
        if given is not None:
            if not str(given).isdecimal():
                raise UsageError(
                    f"{report.path}: {param(role)} {given}: CoNLL columns have no names; give a "
                    "number, the first is 0"
                )
            found[role] = int(given)
        if found[role] >= width:
            raise UsageError(
                f"{report.path}: {param(role)} {given}: line {line} has "
                f"{count_of(width, 'column')}, and the first is 0"
            )
        report.columns[role] = str(found[role])
    if need_label and found["text"] == found["label"]:
        raise UsageError(
            f"{report.path}: {param('text')} and {param('label')} must name different columns"
        )
    return found["text"], found["label"]


def _sentence_problem(bad: Sequence[Problem]) -> Problem:
    more = f" (and {count_of(len(bad) - 1, 'more line')} of this sentence)" if bad[1:] else ""
    return Problem(bad[0].row, bad[0].message + more)


def _raw_texts(lines: Iterator[Line], report: ReadReport) -> Iterator[TaggedExample | Problem]:
    if report.need_label:
        raise UsageError(
            f"{report.path}: plain text has no tags; give {param('format', 'conll')}, jsonl or json"
        )
    for number, raw, problem in lines:
        text = chomp(raw)
        if text.startswith(DOCUMENT_START):
            raise DataError(
                f"{report.path}:{number}: {DOCUMENT_START} belongs in CoNLL files and not in plain "
                f"text; give {param('format', 'conll')}"
            )
        yield Problem(number, problem) if problem else untagged(text, number)


def _with_kind(
    rows: Sequence[TaggedExample | Problem], report: ReadReport, of_entities: bool | None
) -> Iterator[TaggedExample | Problem]:
    """The rows with entities in IOB2, and a Problem for each wrong tag."""
    examples = [row for row in rows if isinstance(row, TaggedExample)]
    sentences = [one.tags or () for one in examples]
    kind = kind_of(sentences, of_entities)
    # The message names the first wrong tag of a sentence.
    wrong = dict(reversed(kind.wrong))
    if kind.scheme is None:
        report.notes.append(
            "no tag begins with B- or I-: tags are classes of words, and no entities are scored"
            if of_entities is None
            else "tags are classes of words, as in training, and no entities are scored"
        )
    elif any(one.text is None for one in examples):
        read_as = "" if kind.scheme == "IOB2" else ", read as IOB2"
        report.notes.append(f"tags of entities in {kind.scheme}{read_as}")
    if kind.unusual:
        report.notes.append(
            f"{count_of(len(kind.unusual), 'sentence')} in which {kind.scheme} would write other "
            f"tags (the first on {LINE} {examples[kind.unusual[0]].row}), as where I- begins an "
            "entity; read as conlleval reads them"
        )
    others = "other tags" if of_entities is None else "those in training"
    number = -1
    for row in rows:
        if isinstance(row, Problem):
            yield row
            continue
        number += 1
        tags = sentences[number]
        if not tags:
            yield Problem(row.row, "it has no word, so nothing to learn or to measure")
        elif number in wrong:
            place = wrong[number]
            line = row.row + place if report.format == "conll" else row.row
            yield Problem(
                line,
                f"the tag {tags[place][:40]!r} of the word {row.words[place][:40]!r} is none of "
                f"entities, which {others} are: O, or B- or I- and a type, is expected",
            )
        else:
            yield row if kind.scheme is None else replace(row, tags=as_iob2(tags))


def _tuple_names(first: Sequence[object]) -> Sequence[str]:
    """The columns of rows (words, tags), or (text, entities)."""
    if len(first) not in (1, 2):
        raise DataError(
            f"a row has {count_of(len(first), 'value')}: expected (words, tags) or (text, entities)"
        )
    is_raw = isinstance(first[0], str)
    return (("text", "entities") if is_raw else ("tokens", "tags"))[: len(first)]


read_tagged = ExampleReader(_rows, FORMATS, _tuple_names)
