"""Redaction: texts and columns of files, with entities blacked out.

A text of which a part could not be read is left out whole.  Nothing here writes or names what was
blacked out, or what may have to be.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Unpack

import numpy as np

from tidybert.checkpoints.graph import Cpu
from tidybert.errors import TidyBertError, UsageError, param
from tidybert.files.columns import KNOWN_NAMES, is_number, plain_name
from tidybert.files.example_reader import ExampleReader
from tidybert.files.formats import source
from tidybert.files.reading import ReadOptions, ReadReport
from tidybert.files.rows import Problem, Record, has_lone_surrogate
from tidybert.files.text_files import FORMATS
from tidybert.files.text_lines import chomp
from tidybert.inference.answer_files import AnswerForm, Chunks, json_line
from tidybert.inference.answer_sheets import TableForm, table_form
from tidybert.inference.forward import in_chunks
from tidybert.inference.keywords import PredictorKeywords
from tidybert.inference.predictor import Predictor
from tidybert.inference.text_jobs import TableJob
from tidybert.tasks.answer import Tagged
from tidybert.tasks.answers import Answers
from tidybert.tasks.tags.patterns import Mark, Patterns
from tidybert.tasks.tags.redaction import BLACKED_OUT, Redacted, black_out
from tidybert.tasks.tags.tag_files import mark_entities

if TYPE_CHECKING:
    import torch

UNREAD: Final = Redacted(None, [])


class Redactor:
    """Blacks out the entities of a model, and what patterns find.

    Args:
        run: a RUN that tags entities, or its predictor; None for patterns alone.
        patterns: see ``Patterns``.
        redact_with: the placeholder; see ``black_out``.
        options: of ``Predictor``.

    Raises UsageError where there is nothing to look for, or the RUN tags no entities.
    """

    def __init__(
        self,
        run: str | Path | Predictor[Any] | None = None,
        *,
        patterns: str | Sequence[str] = (),
        redact_with: str = BLACKED_OUT,
        **options: Unpack[PredictorKeywords],
    ) -> None:
        self.patterns, self.redact_with = Patterns(patterns), redact_with
        self.predictor: Predictor[Any] | None = None
        if run is not None:
            self.predictor = run if isinstance(run, Predictor) else Predictor(run, **options)
            check_redacts(self.predictor)
        elif not self.patterns.names:
            raise UsageError(
                f"{param('redact')} needs a RUN that tags entities, or patterns: give "
                f"{param('patterns', 'email,iban,card')}"
            )

    @property
    def fingerprint(self) -> str:
        return self.predictor.fingerprint if self.predictor else hashlib.sha256().hexdigest()

    @property
    def device(self) -> "torch.device | Cpu":
        return self.predictor.device if self.predictor else Cpu()

    @property
    def precision(self) -> str:
        return self.predictor.precision if self.predictor else "float32"

    @property
    def max_seq_length(self) -> int:
        return self.predictor.max_seq_length if self.predictor else 0

    def redact(self, texts: Sequence[Any]) -> list[Redacted]:
        """Each text without its entities; one that is no text, or cannot be read, is None."""
        found = [UNREAD] * len(texts)
        usable = [at for at, one in enumerate(texts) if is_readable(one)]
        for at, one in zip(usable, self._redact([texts[at] for at in usable]), strict=True):
            found[at] = one
        return found

    def _redact(self, texts: list[str]) -> list[Redacted]:
        if self.predictor is None:
            return [black_out(one, self.patterns.find(one), self.redact_with) for one in texts]
        examples = self.predictor.task.from_texts(texts, None)
        try:
            return self.answered(self.predictor.examine(examples, labelled=False))
        except TidyBertError:
            # One text that cannot be read leaves the others as they are.
            return [UNREAD] if len(texts) == 1 else [self._redact([one])[0] for one in texts]

    def answered(self, answers: Answers[Any, Any]) -> list[Redacted]:
        """The texts that a model has answered, blacked out."""
        assert self.predictor is not None
        unread = unread_examples(answers, self.predictor.tokenizer.unk_token_id)
        found = []
        for number, example in enumerate(answers.examples):
            if number in unread:
                found.append(UNREAD)
                continue
            text, answer = example.located()[0], answers.prediction(number)
            assert isinstance(answer, Tagged)
            marks = [
                Mark(each["type"], each["start"], each["end"], each["score"])
                for each in answer.entities
            ]
            found.append(black_out(text, [*marks, *self.patterns.find(text)], self.redact_with))
        return found


def is_readable(value: object) -> bool:
    """Whether a value is a text that UTF-8 can hold."""
    return isinstance(value, str) and not has_lone_surrogate(value)


def check_redacts(predictor: Predictor[Any]) -> None:
    """Raise UsageError for a RUN that tags no entities."""
    task = predictor.task
    if task.answer is not Tagged or not mark_entities(task.names):
        raise UsageError(
            f"{param('redact')} is for a RUN that tags entities, and this one was trained to "
            f"{task.name}{' other tags' if task.answer is Tagged else ''}"
        )


def unread_examples(answers: Answers[Any, Any], unknown: int) -> set[int]:
    """The examples with a word that the vocabulary does not know, or without a finite answer."""
    unread = set()
    for one, rows in zip(answers.features, answers.outputs, strict=True):
        words = answers.examples[one.example].words
        lost = one.place.words[one.input_ids[one.place.rows] == unknown]
        if not np.isfinite(rows).all() or any(map(str.isalnum, "".join(words[at] for at in lost))):
            unread.add(one.example)
    return unread


# Columns of files.


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a file: its cells by column, None where it cannot be read."""

    number: int
    cells: Mapping[str, object] | None


def _rows(options: ReadOptions, report: ReadReport, *, need_label: bool) -> Iterator[Row]:
    with source(report, FORMATS) as found:
        rows: Iterator[Record | Problem]
        text = options.text if found.shape == "cells" and options.header is None else None
        if text is not None and is_number(text):
            report.options = replace(report.options, header=False)
        if found.shape == "lines":
            rows = (
                Problem(at, problem) if problem else (at, {"text": chomp(line)})
                for at, line, problem in found.rows
            )
        else:
            rows = found.records(report)
        for one in rows:
            yield Row(one.row, None) if isinstance(one, Problem) else Row(*one)


_read_rows: Final = ExampleReader[Row](_rows, FORMATS)


@dataclass(frozen=True)
class RedactedTable(TableForm):
    """A table with the columns of the input."""

    def cells(self, example: Any, answer: Mapping[str, Any]) -> tuple[Mapping[str, Any], Any]:
        return answer["cells"], {}


@dataclass(frozen=True, kw_only=True)
class RedactJob(TableJob):
    """The rows of a file, with some columns blacked out; ``model`` is "" for patterns alone.

    columns: those to black out, beside the text's.  patterns, redact_with: as ``Redactor``.
    counts: how many entities of each type were blacked out.  others: columns that were not.
    unread: the first rows that could not be read.
    """

    columns: tuple[str, ...] = ()
    patterns: str | Sequence[str] = ()
    redact_with: str = BLACKED_OUT
    counts: Counter[str] = field(default_factory=Counter, compare=False, repr=False)
    others: dict[str, None] = field(default_factory=dict, compare=False, repr=False)
    unread: list[int] = field(default_factory=list, compare=False, repr=False)
    name: ClassVar = "redact"
    form: ClassVar = AnswerForm("redacted", lambda each: json_line(each["cells"], default=str))

    def load(self) -> Redactor:
        return Redactor(
            self.model or None,
            patterns=self.patterns,
            redact_with=self.redact_with,
            **self.options,
        )

    def cut(self, opened: Redactor) -> str:
        return ""

    def asked(self) -> dict[str, Any]:
        names = ("columns", "patterns", "redact_with")
        return {name: getattr(self, name) for name in names}

    def form_of(self, opened: Redactor) -> AnswerForm:
        return table_form(self.out, RedactedTable, delimiter=self.separator) or self.form

    def examples(self, opened: Redactor, source: str | Path, report: ReadReport) -> Iterator[Row]:
        self.reports[:] = [report]
        return _read_rows(source, self.read, need_label=False, report=report)

    def chunks(self, opened: Redactor, texts: Iterable[Row], *, first: int = 1) -> Chunks:
        columns: Sequence[str] = ()
        for chunk in in_chunks(texts, first=first):
            read = [row.cells for row in chunk if row.cells is not None]
            columns = columns or (self._columns(opened, read[0]) if read else ())
            for cells in read:
                self.others.update(dict.fromkeys(each for each in cells if each not in columns))
            given = [row[name] for row in read for name in columns if not _is_blank(row, name)]
            found = iter(opened.redact(given))
            yield chunk, [self._answer(row, columns, found) for row in chunk]

    def _answer(
        self, row: Row, columns: Sequence[str], found: Iterator[Redacted]
    ) -> dict[str, Any]:
        is_read = row.cells is not None
        cells = dict(row.cells or dict.fromkeys(columns))
        for name in columns:
            if not _is_blank(cells, name):
                redacted = next(found)
                cells[name], is_read = redacted.text, is_read and redacted.text is not None
                self.counts.update(each["type"] for each in redacted.entities)
        if not is_read:
            self.unread.append(row.number)
        return {"cells": cells, "truncated": not is_read}

    def _columns(self, opened: Redactor, cells: Mapping[str, object]) -> tuple[str, ...]:
        """The columns to black out, of the first row; no message shows what a row has."""
        text, report = self.read.text, self.reports[0] if self.reports else ReadReport()
        if text is None:
            reading = opened.predictor.reading if opened.predictor else None
            trained = {reading.columns["text"]} if reading and "text" in reading.columns else set()
            groups = [trained, *(each.texts for each in KNOWN_NAMES)]
            known = ([one for one in cells if {one, plain_name(one)} & each] for each in groups)
            guessed = next((each for each in known if each), [])
            text = guessed[0] if len(guessed) == 1 else None
        if text is None and not self.columns:
            raise UsageError(
                f"{report.path}: cannot tell which column holds the text: give {param('text')} "
                f"COLUMN, or several with {param('redact_columns')}"
            )
        columns = (*([] if text is None else [str(text)]), *self.columns)
        for name in columns:
            if name not in cells:
                flag = "text" if name == str(text) else "redact_columns"
                raise UsageError(
                    f"{report.path}: {param(flag, name)}: there is no such column; where the first "
                    f"row is data, give {param('header', False)} and columns by number from 0"
                )
        report.columns["text"] = ",".join(dict.fromkeys(columns))
        return tuple(dict.fromkeys(columns))


def _is_blank(cells: Mapping[str, object], name: str) -> bool:
    return cells.get(name) is None or cells[name] == ""
