"""Files of tagged sentences: CoNLL columns, rows with words and tags or with spans, plain text.

CoNLL files are as the shared tasks published them (Tjong Kim Sang and De Meulder 2003): a word a
line, its tag in the last column, a blank line after each sentence, -DOCSTART- before a document.
Whatever scheme the tags of entities are in, examples have them in IOB2.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain, pairwise
from typing import Any, Final, cast

from tidybert.errors import LINE, DataError, UsageError, param
from tidybert.files.annotations import span_in
from tidybert.files.columns import MISSING, describe_columns, plain_name, record_values
from tidybert.files.example_reader import ExampleReader
from tidybert.files.formats import FileFormats, source
from tidybert.files.label_rows import last_records
from tidybert.files.reading import ReadOptions, ReadReport
from tidybert.files.rows import Problem, Record, count_of, json_type, text_problem
from tidybert.files.text_examples import list_in
from tidybert.files.text_lines import Line, chomp
from tidybert.metrics.entity_scores import NO_TYPE, Entity, entities, iob2_tags
from tidybert.tasks.answer import FoundEntity
from tidybert.tokenization.basic import BasicTokenizer

# Tagged sentences: raw text split into words, and the kind of a file's tags.
#
# Tags are entities in one of four schemes, or just a class for each word.  IOB1 (CoNLL-2003 as it
# was published) writes B- only on an entity that touches another of its type, IOB2 on every entity;
# IOBES and its twin BILOU also mark the last word and the single one.  ``as_iob2`` turns all into
# IOB2.

Tags = Sequence[str]

_PREFIXES: Final = "BIESLU"
_LAST_AND_LONE: Final = {"IOBES": ("E", "S"), "BILOU": ("L", "U")}
SCHEMES: Final = ("IOB2", "IOB1", *_LAST_AND_LONE)

# A word's first character in the text, and the one after its last.
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class TaggedExample:
    """One sentence, or any stretch of text that is tagged at once.

    Args:
        words: as the file has them, or as ``split_text`` cuts the text.
        tags: one a word, those of entities in IOB2; None where they are to be found.
        row: the 1-based line where it begins.
        text: the raw text, where the file has that and not words.
        spans: of each word in ``text``.
        columns: of the file, where they are kept.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    row: int
    text: str | None = None
    spans: tuple[Span, ...] | None = None
    columns: Mapping[str, object] | None = field(default=None, repr=False, compare=False)

    def located(self) -> tuple[str, tuple[Span, ...]]:
        """The text and each word's place in it; words alone are joined by spaces."""
        if self.text is not None and self.spans is not None:
            return self.text, self.spans
        spans = []
        start = 0
        for word in self.words:
            spans.append((start, start + len(word)))
            start += len(word) + 1
        return " ".join(self.words), tuple(spans)


def untagged(text: str, row: int) -> TaggedExample:
    """A raw text to be tagged."""
    words, spans = split_text(text)
    return TaggedExample(words, None, row, text, spans)


def split_text(text: str) -> tuple[tuple[str, ...], tuple[Span, ...]]:
    """The words of a text, spelled as in it, and their places.

    Words end at white space; each mark of punctuation and each CJK ideograph is one of its own, as
    in BERT's basic tokenizer.  A character that this drops (a control character) is in no word,
    unless it is within one.

    >>> split_text("in U.K., too")
    (('in', 'U', '.', 'K', '.', ',', 'too'), \
((0, 2), (3, 4), (4, 5), (5, 6), (6, 7), (7, 8), (9, 12)))
    """
    found = _basic_tokenizer().split_with_offsets(text)
    spans = tuple(word.span(0, len(word.text)) for word in found)
    return tuple(text[start:end] for start, end in spans), spans


@cache
def _basic_tokenizer() -> BasicTokenizer:
    return BasicTokenizer(do_lower_case=False, strip_accents=False)


@dataclass(frozen=True)
class TagKind:
    """The kind of the tags of all sentences together.

    Args:
        scheme: of SCHEMES, or None for tags that mark no entities.
        wrong: the places (sentence, word) of tags that do not mark entities among those that do.
        unusual: the sentences that this scheme would write otherwise, such as O I-PER in IOB2.
    """

    scheme: str | None
    wrong: list[tuple[int, int]]
    unusual: list[int]


def is_entity_tag(tag: str) -> bool:
    """Whether a tag can be read as one of entities: O, B-PER, or a bare B."""
    return tag == "O" or (tag != "" and tag[0] in _PREFIXES and tag[1:2] in ("", "-"))


def mark_entities(tags: Iterable[str]) -> bool:
    """Whether the tags of all sentences, or those that a model has learned, mark entities."""
    return all(map(is_entity_tag, tags))


def marked_by(tags: Tags, *, of_entities: bool) -> Tags:
    """A sentence's types of entities, each as often as it occurs, or else its tags."""
    return [each.type for each in entities(tags)] if of_entities else tags


def kind_of(sentences: Sequence[Tags], of_entities: bool | None = None) -> TagKind:
    """Tell what tags are from all of them.

    Whether they mark entities may be known; else they do where each is O or has a prefix, as a bare
    B has, and where some have a prefix and a type (B-PER).  Those that are then no tags of entities
    are wrong.  Other tags are classes of words, such as parts of speech.  The scheme is the one
    that most sentences keep to, of equals the first of SCHEMES.
    """
    seen = {tag for tags in sentences for tag in tags}
    strange = {tag for tag in seen if not is_entity_tag(tag)}
    if of_entities is None:
        of_entities = not strange or any(len(tag) > 2 for tag in seen - strange)
    if not of_entities:
        return TagKind(None, [], [])
    wrong = [
        (number, place)
        for number, tags in enumerate(sentences)
        for place, tag in enumerate(tags)
        if tag in strange
    ]
    skipped = {number for number, _ in wrong}
    breaks: dict[str, list[int]] = {scheme: [] for scheme in SCHEMES}
    for number, tags in enumerate(sentences):
        if number in skipped:
            continue
        found = entities(tags)
        named = [f"{tag[0]}-{NO_TYPE}" if tag != "O" and len(tag) < 3 else tag for tag in tags]
        for scheme, broken in breaks.items():
            if _written(found, len(tags), scheme) != named:
                broken.append(number)
    scheme = min(SCHEMES, key=lambda name: len(breaks[name]))
    return TagKind(scheme, wrong, breaks[scheme])


def as_iob2(tags: Tags) -> tuple[str, ...]:
    """The same entities in IOB2."""
    return tuple(iob2_tags(entities(tags), len(tags)))


def _written(found: Sequence[Entity], num_words: int, scheme: str) -> list[str]:
    """The tags of a sentence with these entities, in their order, in any scheme."""
    tags = iob2_tags(found, num_words)
    if scheme == "IOB1":
        touching = {
            after.start
            for before, after in pairwise(found)
            if before.end == after.start and before.type == after.type
        }
        for type_name, start, _ in found:
            tags[start] = f"{'B' if start in touching else 'I'}-{type_name}"
    elif scheme in _LAST_AND_LONE:
        last, lone = _LAST_AND_LONE[scheme]
        for type_name, start, end in found:
            tags[end - 1] = f"{lone if end - start == 1 else last}-{type_name}"
    return tags


def shown_entities(
    found: Iterable[tuple[Entity, float]], example: TaggedExample
) -> list[FoundEntity]:
    """Entities, each with its score, by their characters in the text."""
    text, spans = example.located()
    shown = []
    for entity, score in found:
        start, end = spans[entity.start][0], spans[entity.end - 1][1]
        shown.append(
            FoundEntity(type=entity.type, text=text[start:end], start=start, end=end, score=score)
        )
    return shown


# Tagged sentences as objects: words with a tag each, or a raw text with the spans of its entities.

WORD_KEYS: Final = ("tokens", "words")
TAG_KEYS: Final = ("tags", "ner_tags", "labels")
TEXT_KEY: Final = "text"
SPAN_KEYS: Final = ("entities", "spans", "label", "labels")
# The columns of tables with a word a row, in the spelling of ``plain_name``.
_SENTENCES: Final = ("sentence_#", "sentence#", "sentence_id", "sent_id", "sentence")
_WORDS: Final = ("word", "token", "words", "tokens")
_TAGS: Final = ("tag", "ner", "ner_tag", "label", *TAG_KEYS)


def _sentences(rows: Iterator[Record | Problem], report: ReadReport) -> Iterator[Record | Problem]:
    """Rows of a word each as objects of a sentence, where a column numbers or names the sentences.

    A sentence begins where that column has another value; an empty cell has that of the row before.
    """
    columns: Sequence[str] = ()
    sentence_of: object = None
    sentence: dict[str, list[object]] = {}
    start, bad = 0, None
    for row in rows:
        if isinstance(row, Problem):
            bad = bad or row
            continue
        columns = columns or _word_columns(row[1], report)
        if not columns:
            yield from chain([bad] if bad else [], [row], rows)
            return
        number, values = row
        cell = values.get(columns[0])
        if cell not in (None, "", sentence_of):
            if sentence:
                yield bad or (start, sentence)
                sentence, bad = {}, None
            sentence_of = cell
        start = start if sentence else number
        for name in columns[1:]:
            value = values.get(name)
            sentence.setdefault(name, []).append(value)
            if value in (None, ""):
                bad = bad or Problem(number, f"{name!r} is empty")
    if sentence or bad:
        yield bad or (start, sentence)


def _word_columns(record: Mapping[str, object], report: ReadReport) -> Sequence[str]:
    """The columns of the sentence, the word and its tag; none where the rows are no words."""
    options = report.options
    names = {plain_name(name): name for name in record}
    wanted = {"text": (options.text, _WORDS), "label": (options.label, _TAGS)}
    found: dict[str, Any] = {
        role: given or next((names[each] for each in known if each in names), None)
        for role, (given, known) in wanted.items()
        if role == "text" or report.need_label
    }
    sentence = next((names[each] for each in _SENTENCES if each in names), None)
    columns = [str(name) for name in (sentence, *found.values()) if name is not None]
    if len(columns) <= len(found) or any(isinstance(record.get(one), list) for one in columns):
        return ()
    report.options = replace(options, **found)
    report.guessed += [role for role in found if getattr(options, role) is None]
    report.notes.append(f"a word a row; {sentence!r} says which sentence it is of")
    return columns


def record_examples(
    rows: Iterator[Record | Problem], report: ReadReport
) -> Iterator[TaggedExample | Problem]:
    """Objects such as {"tokens": […], "tags": […]} or {"text": …, "entities": [{"start", …}]}.

    Keys that are not given are looked for in the first object, under their common names.
    """
    head: list[Record | Problem] = []
    rows = (row if isinstance(row, Problem) else _with_lists(*row, report) for row in rows)
    for row in rows:
        head.append(row)
        if not isinstance(row, Problem):
            report.options = _with_keys(row[0], row[1], report)
            break
    for values in record_values(chain(head, rows), report):
        if isinstance(values, Problem):
            yield values
            continue
        number, content, _, marks, columns = values
        if not report.need_label:
            marks = MISSING
        key = report.columns["text"]
        made: TaggedExample | Problem
        if isinstance(content, list):
            made = _from_words(number, key, content, marks)
        elif not isinstance(content, str):
            expected = "where a text or a list of words is expected"
            made = Problem(number, f"{key!r} is {json_type(content)} {expected}")
        elif problem := text_problem(key, content):
            made = Problem(number, problem)
        else:
            made = _from_text(number, content, marks, report)
        if report.keep_columns and not isinstance(made, Problem):
            made = replace(made, columns={**(columns or {}), key: content})
        yield made


def _with_lists(number: int, record: dict[str, Any], report: ReadReport) -> Record:
    """The object with the lists that texts of words and tags spell, as a CSV has them."""
    options = report.options
    for key in map(str, (options.text, options.label, *WORD_KEYS, *TAG_KEYS, *SPAN_KEYS)):
        if isinstance(record.get(key), str) and (found := list_in(record[key])) is not None:
            record[key] = found
    text = options.text or next(filter(record.__contains__, (*WORD_KEYS, TEXT_KEY)), None)
    label = options.label or next(filter(record.__contains__, _TAGS), None)
    words, tags = record.get(str(text)), record.get(str(label))
    parts = tags.split() if report.need_label and isinstance(tags, str) else []
    if isinstance(words, str) and parts and mark_entities(parts):
        # A text of words beside one of tags, with spaces between them.
        record |= {str(text): words.split(), str(label): parts}
    return number, record


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
        label = first(SPAN_KEYS if is_raw else _TAGS)
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
            problem += (
                "; write the tags' names, or put the dataset_info.json of datasets beside the file"
            )
    if problem:
        return Problem(row, problem)
    tags = None if tags is MISSING else tuple(cast(list[str], tags))
    return TaggedExample(tuple(cast(list[str], words)), tags, row)


def _from_text(row: int, text: str, marks: object, report: ReadReport) -> TaggedExample | Problem:
    words, spans = split_text(text)
    if marks is MISSING:
        return TaggedExample(words, None, row, text, spans)
    if not isinstance(marks, list):
        return Problem(row, f"{json_type(marks)} where a list of entities is expected")
    marked = []
    for number, mark in enumerate(marks):
        try:
            marked.append(span_in(text, mark, report))
        except DataError as error:
            return Problem(row, f"entity {number}: {error.message}")
    first_word = {span[0]: number for number, span in enumerate(spans)}
    last_word = {span[1]: number for number, span in enumerate(spans)}
    found_entities = []
    last_end = 0
    for one in sorted(marked, key=lambda each: (each.start, each.end)):
        start, end = one.start, one.end
        shown = f"the entity {text[start:end][:40]!r} ({start} to {end})"
        if start < last_end:
            return Problem(row, f"{shown} overlaps the one before; a word has only one tag")
        last_end = end
        if start not in first_word or end not in last_word:
            return Problem(row, f"{shown} {_misfit(text, spans, start, end)}")
        found_entities.append(Entity(one.label, first_word[start], last_word[end] + 1))
    tags = tuple(iob2_tags(found_entities, len(words)))
    return TaggedExample(words, tags, row, text, spans)


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


def _judge(head: bytes, report: ReadReport) -> tuple[str, str]:
    plain = "conll" if report.need_label else "text"
    return "jsonl" if head.lstrip()[:1] in (b"{", b"[") else plain, "the first byte"


FORMATS: Final = FileFormats(
    "tagged sentences",
    ("conll", "jsonl", "json", "text", "csv", "tsv", "sheet", "parquet", "arrow", "brat"),
    others={".tsv": "conll"},
    refused=("text_pair", "label_separator"),
    judge=_judge,
)
DOCUMENT_START: Final = "-DOCSTART-"

# What CoNLL-U has in the first of ten columns of its first word, or of what stands before it.
_FIRST_ID: Final = re.compile(r"1|1-[0-9]+|0\.1")
_CONLLU_WIDTH: Final = 10
_CONLLU_COLUMNS: Final = {"text": 1, "label": 3}

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
    plain = "conll" if report.need_label else "text"
    formats = replace(FORMATS, others={**FORMATS.others, ".txt": plain})
    with source(report, formats) as found:
        if report.format == "conll":
            yield from _conll_sentences(found.rows, report)
        elif report.format == "text":
            yield from _raw_texts(found.rows, report)
        else:
            rows = last_records(found.records(report), report, keeps_none=False)
            yield from record_examples(
                rows if found.shape == "objects" else _sentences(rows, report), report
            )


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
    lines, is_conllu = _conllu_words(lines, report)
    for number, raw, problem in chain(lines, [(0, "", None)]):
        by_tab = is_conllu and not raw.isspace()
        cells = chomp(raw).split("\t") if by_tab and raw else _CELL.findall(chomp(raw))
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
            usual = _CONLLU_COLUMNS if is_conllu else {"text": 0, "label": width - 1}
            word_column, tag_column = _columns(width, number, report, usual)
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


def _conllu_words(lines: Iterator[Line], report: ReadReport) -> tuple[Iterator[Line], bool]:
    """The lines, and whether they are CoNLL-U: then without comments, ranges and empty nodes."""
    head: list[Line] = []
    for line in lines:
        head.append(line)
        if line[1].strip() and not line[1].startswith("#"):
            break
    first = chomp(head[-1][1]).split("\t") if head else []
    if len(first) != _CONLLU_WIDTH or not _FIRST_ID.fullmatch(first[0]):
        return chain(head, lines), False
    left_out = Counter[str]()

    def words() -> Iterator[Line]:
        for line in chain(head, lines):
            name = line[1].partition("\t")[0]
            kind = "comment" if name.startswith("#") else ""
            kind = kind or ("range" if "-" in name else "empty node" if "." in name else "")
            if not kind:
                yield line
            left_out[kind] += 1
        shown = ", ".join(count_of(left_out[kind], kind) for kind in left_out if kind)
        report.notes.append(f"CoNLL-U; left out: {shown or 'nothing'}")

    report.shown["conllu"] = "CoNLL-U's columns"
    return words(), True


def _columns(
    width: int, line: int, report: ReadReport, usual: Mapping[str, int]
) -> tuple[int, int]:
    """The columns of the word and of its tag, as given or as usual."""
    need_label = report.need_label
    if need_label and width == 1:
        raise DataError(
            f"{report.path}:{line}: one column where a word and its tag are expected, with spaces "
            f"or a tab between them; is the {param('format')} right?"
        )
    found = dict(usual)
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
            has_lines = report.format == "conll" and "conllu" not in report.shown
            line = row.row + place if has_lines else row.row
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
