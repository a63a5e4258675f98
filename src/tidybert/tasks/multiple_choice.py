"""choose: which of some texts continues or answers another (SWAG, paper 4.4).

Each choice is a sequence [CLS] context [SEP] start and choice [SEP] with one logit, and the softmax
is over the choices of an example, however many it has.

Files are SWAG's CSV, CODAH's columns, and JSON lines.  SWAG (Zellers et al. 2018) continues a
context by one of four endings: ``sent1`` is the context and ``sent2`` the beginning that each
ending continues.  CODAH (Chen et al. 2019) gives a prompt and four endings that complete it.  JSON
lines may have any number of choices, and another one in each.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any, Final, Self, cast

import numpy as np
import numpy.typing as npt

from tidybert.checkpoints.example_kinds import CHOICES
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.data.batching import Batch
from tidybert.data.checks import (
    DataReport,
    TrainingData,
    check_leaks,
    check_lengths,
    check_repetition,
    warn_of_empty,
)
from tidybert.data.features import Features, text_features
from tidybert.data.splits import Indices, random_split
from tidybert.errors import LINE, DataError, UsageError
from tidybert.files.columns import describe_columns
from tidybert.files.example_reader import ExampleReader
from tidybert.files.formats import FileFormats, source
from tidybert.files.reading import ROLES, ReadOptions, ReadReport
from tidybert.files.records import CellsRow
from tidybert.files.rows import (
    Problem,
    Record,
    count_of,
    finite_number,
    json_type,
    keys_seen,
    text_problem,
)
from tidybert.files.text_examples import canonical_label
from tidybert.files.text_lines import NUL_BYTE, utf16_mark_of
from tidybert.metrics.calibration import fit_temperature
from tidybert.metrics.metric import meanings_of
from tidybert.metrics.text_scores import ChoiceScores
from tidybert.tasks.answer import Chosen
from tidybert.tasks.answers import Answers, Floats, Judgement
from tidybert.tasks.task import Task, softmax_divergence, tensor_on
from tidybert.tasks.task_options import TaskOptions
from tidybert.tokenization import BertTokenizer

if TYPE_CHECKING:
    from torch import Tensor

CODAH_ENDINGS: Final = 4

# The keys of JSON lines that mean the same; a question beside a context is what choices answer.
_KEYS: Final = {
    "context": ("context", "prompt", "sent1", "ctx", "article", "question"),
    "start": ("start", "sent2"),
    "choices": ("choices", "endings", "options"),
    "label": ("label", "answer", "answerKey"),
}
# The columns of tables with a choice in each.
_CHOICE_COLUMNS: Final = ([f"ending{number}" for number in range(100)], list(ascii_uppercase))


@dataclass(frozen=True, slots=True)
class ChoiceExample:
    """A context and its choices, of which one is right.

    Args:
        context: what the choices have in common, read before them.
        start: what each choice continues, or the question that it answers; may be empty.
        choices: two texts at least.
        label: the number of the right one, from 0, where the file has it.
        row: the 1-based line of the file.
        columns: of the file, where they are kept.
    """

    context: str
    start: str
    choices: tuple[str, ...]
    label: int | None
    row: int
    columns: Mapping[str, object] | None = field(default=None, repr=False, compare=False)

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

    ``answer`` is the number of the right choice, from 0, its text, or its letter.
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
    if isinstance(answer, str) and answer in ascii_uppercase[: len(choices)]:
        return ascii_uppercase.index(answer)
    if isinstance(answer, str) and all(finite_number(each) is None for each in choices):
        # As HellaSwag has it; among numbers it would be a text.
        answer = int(answer) if answer.isdecimal() else answer
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
    """The rows of a file; a row without a right answer has no label."""
    with source(report, FORMATS) as found:
        of_cells = found.shape == "cells"
        is_codah = report.format == "codah"
        rows = _codah_records(found.rows, report) if is_codah else found.records(report)
        for row in rows:
            if isinstance(row, Problem):
                yield row
                continue
            made = _example(row[0], row[1], report, of_cells)
            if report.keep_columns and not isinstance(made, Problem):
                made = replace(made, columns=row[1])
            yield made


def _judge(head: bytes, report: ReadReport) -> tuple[str, str]:
    """The format that a file's first line shows."""
    path = report.path
    text = head.decode(utf16_mark_of(head) or report.options.codec(), "ignore")
    line = text.removeprefix("\ufeff").lstrip().partition("\n")[0]
    if "\0" in line:
        raise DataError(f"{path}:1: {NUL_BYTE}")
    if not line:
        raise DataError(f"{path}: it holds no example; is it the right file?")
    for begins, name in (("{", "jsonl"), ("[", "json")):
        if line.startswith(begins):
            return name, "the first line"
    names = {each.strip(' "\r') for each in re.split("[,;|\t]", line)}
    if "ending0" in names or {"A", "B"} <= names:
        return "swag", "the first line"
    if "\t" in line:
        return "codah", "the first line"
    raise UsageError(f"{path}: the first line does not tell the format; {FORMATS.advice()}")


def _codah_records(
    rows: Iterator[CellsRow | Problem], report: ReadReport
) -> Iterator[Record | Problem]:
    bare = 2 + CODAH_ENDINGS
    for row in rows:
        if isinstance(row, Problem):
            yield row
        elif len(row[1]) != bare + 1 and (report.need_label or len(row[1]) != bare):
            yield Problem(
                row[0],
                f"{count_of(len(row[1]), 'column')} where {bare + 1} are expected (category, "
                f"prompt, {CODAH_ENDINGS} endings, the answer's number)",
            )
        else:
            category, prompt, *others = row[1]
            content = {"category": category, "prompt": prompt, "endings": others[:CODAH_ENDINGS]}
            yield row[0], content | dict(zip(("answer",), others[CODAH_ENDINGS:], strict=False))


FORMATS: Final = FileFormats(
    "choices",
    ("swag", "codah", "jsonl", "json", "sheet", "parquet", "arrow"),
    refused=(*ROLES, "label_separator", "header"),
    judge=_judge,
    every=True,
)


def _example(
    row: int, record: dict[str, Any], report: ReadReport, of_cells: bool
) -> ChoiceExample | Problem:
    need_label, seen = report.need_label, list(record)
    if isinstance(asked := record.get("question"), dict) and {"stem", "choices"} <= asked.keys():
        record = {**record, "question": asked["stem"], "choices": asked["choices"]}
    for each in _CHOICE_COLUMNS:
        if each[0] in record and not {*_KEYS["choices"]} & record.keys():
            listed = [record[name] for name in takewhile(record.__contains__, each)]
            record = {**record, "choices": listed}
    found = {role: [key for key in keys if key in record] for role, keys in _KEYS.items()}
    if len(found["context"]) == 2 and found["context"][1] == "question" and not found["start"]:
        found["start"] = [found["context"].pop()]
    for role, keys in found.items():
        if len(keys) > 1:
            return Problem(row, f"both {keys[0]!r} and {keys[1]!r}; give one of them")
        if not keys and (role in ("context", "choices") or (role == "label" and need_label)):
            known = ", ".join(_KEYS[role])
            if of_cells and report.header:
                columns = describe_columns(seen)
                raise DataError(f"{report.path}: no column is named any of {known}. {columns}")
            return Problem(row, f"none of the keys {known} among {keys_seen(seen)}")
    absent: tuple[object, ...] = ("", "", [], None)
    context, start, choices, label = (
        record[keys[0]] if keys else default
        for keys, default in zip(found.values(), absent, strict=True)
    )
    choices, names = _with_names(choices)
    if names.count(label) == 1:
        label = names.index(label)
    if not isinstance(choices, list):
        key = found["choices"][0]
        return Problem(row, f"{key!r} is {json_type(choices)} where a list of texts is expected")
    if of_cells and isinstance(label, str):
        label = _number(label)
    return choice_example(row, context, start, choices, label, need_label=need_label)


def _with_names(choices: object) -> tuple[object, list[object]]:
    """The texts of choices and their names, such as "A", where they have some, as those of ARC."""
    if isinstance(choices, list) and all(
        isinstance(each, dict) and "text" in each for each in choices
    ):
        return [each.get("text") for each in choices], [each.get("label") for each in choices]
    if isinstance(choices, dict) and isinstance(choices.get("text"), list):
        names = choices.get("label")
        return choices["text"], names if isinstance(names, list) else []
    if isinstance(choices, dict):
        return list(choices.values()), list(choices)
    return choices, []


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


class ChosenAnswers(Answers["MultipleChoice", ChoiceExample]):
    """A probability for each choice."""

    @cached_property
    def log_probabilities(self) -> list[Floats]:
        """(C,) of each example."""
        found = []
        for logits in self.outputs:
            scaled = logits.astype(np.float64) / self.task.temperature
            scaled -= scaled.max()
            found.append(scaled - np.log(np.exp(scaled).sum()))
        return found

    @cached_property
    def right(self) -> npt.NDArray[np.bool_]:
        """(N,) whether the right choice is the likeliest."""
        pairs = zip(self.log_probabilities, self.features, strict=True)
        return np.array([each.argmax() == one.label for each, one in pairs])

    @cached_property
    def losses(self) -> Floats:
        """(N,) -ln(probability of the right choice)."""
        pairs = zip(self.log_probabilities, self.features, strict=True)
        return np.array([-each[one.label] for each, one in pairs])

    def metrics(self, chosen: Indices | None = None) -> dict[str, Any]:
        which = slice(None) if chosen is None else chosen
        return {
            "accuracy": float(self.right[which].mean()),
            "log_loss": float(self.losses[which].mean()),
        }

    def prediction(self, number: int) -> Chosen:
        scores = np.exp(self.log_probabilities[number]).tolist()
        best = int(self.log_probabilities[number].argmax())
        return Chosen(best, self.examples[number].choices[best], scores[best], scores)

    def judgement(self, number: int) -> Judgement:
        example, one = self.examples[number], self.features[number]
        answer = self.prediction(number)
        return Judgement(
            text="\n".join(self.task.shown(example)),
            expected=example.choices[one.label],
            predicted=answer.text,
            correct=float(answer.choice == one.label),
            confidence=answer.score,
            expected_probability=answer.scores[one.label],
            num_tokens=one.num_tokens,
            row=example.row,
        )


@dataclass(eq=False)
class MultipleChoice(Task[ChoiceExample]):
    """Cross-entropy over the choices of each example."""

    temperature: float = 1.0
    """Answers divide logits by this before the softmax."""

    name = "choose"
    inputs = CHOICES
    answer, answers_class = Chosen, ChosenAnswers
    metric = "accuracy"
    architecture = "BertForMultipleChoice"
    read = read_choices
    unit = "sequence"
    head = "classifier"
    has_pooling = True
    meanings = meanings_of(ChoiceScores)

    @classmethod
    def from_texts(
        cls, texts: Sequence[str], text_pairs: Sequence[Sequence[str]] | None
    ) -> list[ChoiceExample]:
        """Contexts, and the list of each one's choices."""
        if text_pairs is None:
            raise DataError("only contexts were given; give the choices of each as a second list")
        examples = []
        for row, (context, choices) in enumerate(zip(texts, text_pairs, strict=True), start=1):
            if isinstance(choices, str):
                raise DataError(f"the choices of context {row} are one text; give a list of texts")
            made = choice_example(row, context, "", choices, None, need_label=False)
            if isinstance(made, Problem):
                raise DataError(f"context {row}: {made.message}")
            examples.append(made)
        return examples

    @classmethod
    def shown(cls, example: ChoiceExample) -> Sequence[str]:
        return ("\n".join(filter(None, (example.context, example.start))),)

    @classmethod
    def identity(cls, example: ChoiceExample) -> Hashable:
        """The choices in whatever order."""
        return example.context, example.start, frozenset(example.choices)

    @classmethod
    def split(
        cls, examples: Sequence[ChoiceExample], fraction: float, seed: int
    ) -> tuple[Indices, Indices]:
        """No context is on both sides, unless all examples share one, such as an instruction."""
        contexts = [one.context for one in examples]
        if len(set(contexts)) == 1:
            return super().split(examples, fraction, seed)
        return random_split(len(examples), fraction, seed, texts=contexts)

    @classmethod
    def from_examples(
        cls, examples: Sequence[ChoiceExample], options: TaskOptions = TaskOptions()
    ) -> Self:
        return cls()

    @classmethod
    def from_metadata(cls, metadata: ModelMetadata) -> Self:
        return cls(metadata.settings.get("temperature", 1.0))

    def settings(self) -> dict[str, Any]:
        return {"temperature": self.temperature}

    def features(
        self, examples: Sequence[ChoiceExample], tokenizer: BertTokenizer, max_seq_length: int
    ) -> list[Features]:
        """A sequence a choice; the example has as many tokens as its longest."""
        pairs = [(one.context, choice) for one in examples for choice in one.continued()]
        sequences = iter(
            text_features(
                tokenizer, [pair[0] for pair in pairs], [pair[1] for pair in pairs], max_seq_length
            )
        )
        features = []
        for number, example in enumerate(examples):
            parts = [next(sequences) for _ in example.choices]
            features.append(Features.of_sequences(parts, number))
        return features

    def examine(self, data: TrainingData[ChoiceExample], report: DataReport) -> None:
        check_numbers(report, data)
        warn_of_empty(report, data, _is_empty, noun="text")
        check_equal_choices(report, data)
        check_repetition(
            report, data, self.identity, _right_choice, noun="question", label="answer"
        )
        check_leaks(report, data, self.identity, noun="question")
        check_lengths(report, data)

    def add_labels(self, features: Sequence[Features], examples: Sequence[ChoiceExample]) -> None:
        for one in features:
            example = examples[one.example]
            if example.label is None:
                raise DataError(f"{LINE} {example.row}: the example has no answer; it needs one")
            one.label = example.label

    def losses(self, outputs: Tensor, batch: Batch) -> Tensor:
        counts = [len(one.lengths) for one in batch.features]
        starts = np.cumsum([0, *counts[:-1]])
        right = [int(first) + one.label for first, one in zip(starts, batch.features, strict=True)]
        outputs = outputs.reshape(-1)  # a probe's are (S, 1)
        chosen = outputs[tensor_on(outputs.device, right)]
        return segment_logsumexp(outputs, counts) - chosen

    def as_outputs(self, rows: Any, one: Features) -> Any:
        return rows[:, 0]

    def imitation_losses(
        self, outputs: Tensor, taught: Tensor, batch: Batch, temperature: float
    ) -> Tensor:
        from torch.nn.utils.rnn import pad_sequence

        starts = np.cumsum([len(one.lengths) for one in batch.features[:-1]]).tolist()

        def padded(logits: Tensor) -> Tensor:
            parts = list(logits.reshape(-1).tensor_split(starts))
            return pad_sequence(parts, batch_first=True, padding_value=float("-inf"))

        return softmax_divergence(padded(outputs), padded(taught), temperature)

    def calibrated(self, answers: ChosenAnswers) -> Self:
        labels = [one.label for one in answers.features]
        return type(self)(fit_temperature(answers.outputs, labels))


def segment_logsumexp(logits: Tensor, counts: Sequence[int]) -> Tensor:
    """(B,) log-sum-exps of logits (S,), of which the first counts[0] belong together, and so on."""
    segments = tensor_on(logits.device, np.repeat(np.arange(len(counts)), counts))
    largest = logits.detach().new_full((len(counts),), float("-inf"))
    largest = largest.scatter_reduce(0, segments, logits.detach(), "amax")
    sums = logits.new_zeros(len(counts)).index_add(0, segments, (logits - largest[segments]).exp())
    return sums.log() + largest


def _is_empty(one: ChoiceExample) -> bool:
    return not (one.context + one.start).strip()


def _right_choice(one: ChoiceExample) -> str | None:
    return None if one.label is None else one.choices[one.label]


def check_numbers(report: DataReport, data: TrainingData[ChoiceExample]) -> None:
    """Report the number of choices, and how often a guess is right."""
    numbers = [len(one.choices) for one in data.train]
    least, most = min(numbers), max(numbers)
    report.facts.append(f"choices: {least if least == most else f'{least} to {most}'} an example")
    measured = data.dev or data.train
    chance = sum(1 / len(one.choices) for one in measured) / len(measured)
    part = "dev" if data.dev else "training"
    report.facts.append(f"a guess is right in {chance:.1%} of the {part} examples")


def check_equal_choices(report: DataReport, data: TrainingData[ChoiceExample]) -> None:
    """Warn of examples that have a choice twice."""
    for counted, lines in data.those(lambda one: len(set(one.choices)) < len(one.choices)):
        report.warnings.append(
            f"{counted} with equal choices ({lines}), which no model can tell apart; change one of "
            "them"
        )
