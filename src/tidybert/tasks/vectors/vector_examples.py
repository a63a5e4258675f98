"""Files of texts that belong together: pairs, triplets, pairs with scores, texts with labels.

Column names say which: two texts, negatives (``negative``, ``negative_1``, …, or a list), and a
label, which is a score of two texts or the class of one.  The formats are those of texts.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from tidybert.data.checks import (
    PERCENTILES,
    SHOWN,
    DataReport,
    TrainingData,
    check_leaks,
    check_lengths,
    check_repetition,
    lines_of,
    listed,
    short,
    warn_of_empty,
)
from tidybert.data.features import Features
from tidybert.errors import LINE, DataError, param
from tidybert.files.columns import Values
from tidybert.files.example_reader import ExampleReader
from tidybert.files.reading import ReadOptions, ReadReport
from tidybert.files.rows import Problem, count_of, finite_number, text_problem
from tidybert.files.text_examples import canonical_label, label_order
from tidybert.files.text_files import FORMATS, text_example, text_values

# sentence-transformers and FlagEmbedding name them so.
_NEGATIVE: Final = re.compile(r"neg(atives?)?(_?[0-9]+)?")
# What labels of pairs say that do not belong together, in MultiNLI and GLUE.
_APART: Final = ("contradiction", "neutral", "not_entailment")
_FLAGS: Final = ("0", "1", "true", "false", "yes", "no")
Form = Literal["pairs", "scores", "labels", "texts"]
FORM_NAMES: Final = {
    "pairs": "pairs of texts",
    "scores": "pairs of texts with scores",
    "labels": "texts with labels",
    "texts": "texts alone",
}


@dataclass(frozen=True, slots=True)
class VectorExample:
    """Texts that belong together or do not.

    Args:
        texts: one text; or a text, one that belongs to it, and any number that do not.
        label: the class of one text, or the score of two, as the file spells it.
        row: the 1-based line of the file.
    """

    texts: tuple[str, ...]
    label: str | None
    row: int

    @property
    def negatives(self) -> tuple[str, ...]:
        """The texts that do not belong to the first."""
        return self.texts[2:]

    @property
    def score(self) -> float | None:
        """The score of two texts; None where the label is not a finite number."""
        return None if self.label is None else finite_number(self.label)


def form_of(examples: Sequence[VectorExample]) -> Form:
    """What examples hold; DataError where they differ in it.

    Two texts have scores where each label is a finite number and no example has negatives.
    """
    singles = [one for one in examples if len(one.texts) == 1]
    if singles and len(singles) < len(examples):
        raise DataError(
            f"{LINE} {singles[0].row}: a single text, but "
            f"{len(examples) - len(singles):,} of {len(examples):,} examples have two: give each "
            "two, or one"
        )
    if singles:
        return "labels" if any(one.label is not None for one in singles) else "texts"
    if any(one.negatives for one in examples):
        return "pairs"
    return "pairs" if any(one.score is None for one in examples) else "scores"


def _examples(
    options: ReadOptions, report: ReadReport, *, need_label: bool
) -> Iterator[VectorExample | Problem]:
    """The rows of a file; with ``need_label``, one text alone needs a label."""
    report.reads_together = report.keep_columns = True
    # Pairs have none, but a label that is named must be there.
    report.need_label = need_label and options.label is not None
    flags: dict[str, set[str]] | None = None
    for values in _of_one_positive(text_values(report)):
        found = values if isinstance(values, Problem) else text_example(values, report)
        if isinstance(found, Problem):
            yield found
            continue
        columns = found.columns or {}
        flags = {name: set() for name in columns} if flags is None else flags
        for name in [*flags]:
            flags[name].add((canonical_label(columns.get(name)) or "").casefold())
            if not flags[name].issubset(_FLAGS):
                del flags[name]
        negatives = _negatives(found.row, columns)
        if isinstance(negatives, Problem):
            yield negatives
        elif found.text_pair is not None:
            yield VectorExample((found.text, found.text_pair, *negatives), found.label, found.row)
        elif negatives:
            what = "negatives, and no column of what belongs to the first text, such as positive"
            yield Problem(found.row, what)
        elif need_label and found.label is None:
            yield Problem(
                found.row,
                "one text without a label; give pairs of texts (columns anchor and positive), "
                f"texts with labels, or {param('teacher')}, whose vectors texts alone learn",
            )
        else:
            yield VectorExample((found.text,), found.label, found.row)
    two = ", ".join(repr(name) for name, values in (flags or {}).items() if len(values) > 1)
    if two and "text_pair" in report.columns and "label" not in report.columns:
        report.notes.append(
            f"not read, though each of its cells says yes or no: {two}; if it says which texts "
            f"belong together, give it as {param('label')}, or leave the other pairs out"
        )


def _of_one_positive(rows: Iterator[Values | Problem]) -> Iterator[Values | Problem]:
    """The rows; one with a list of second texts is a row for each."""
    for row in rows:
        if isinstance(row, Problem) or not isinstance(row[2], list):
            yield row
        elif not row[2]:
            yield Problem(row[0], "no text belongs to the first")
        else:
            yield from ((*row[:2], each, *row[3:]) for each in row[2])


def _negatives(row: int, columns: Mapping[str, object]) -> list[str] | Problem:
    """The texts of the columns of negatives, which may hold lists; an empty cell has none."""
    texts = []
    for name, cell in columns.items():
        if not _NEGATIVE.fullmatch(name.strip().casefold()):
            continue
        for each in cell if isinstance(cell, list) else [cell]:
            if each is None or each == "":
                continue
            if problem := text_problem(name, each):
                return Problem(row, problem)
            assert isinstance(each, str)
            texts.append(each)
    return texts


def _tuple_names(first: Sequence[object]) -> Sequence[str]:
    """The columns of rows (text, text, …), (text, text, score) or (text, number of a class)."""
    if not isinstance(first[0], str) or (len(first) > 2 and not isinstance(first[1], str)):
        raise DataError(
            f"a row has {count_of(len(first), 'value')}: expected (text, text that belongs to it, "
            "texts that do not …), (text, text, score) or (text, number of its class)"
        )
    if len(first) > 1 and not isinstance(first[1], str):
        return ("text", "label")
    if len(first) == 3 and not isinstance(first[2], str | list | tuple):
        return ("anchor", "positive", "label")
    negatives = [f"negative_{number}" for number in range(1, len(first) - 1)]
    return ("text",) if len(first) == 1 else ("anchor", "positive", *negatives)


read_vectors = ExampleReader(_examples, FORMATS, _tuple_names, texts_alone=True)


# Which texts of a batch are candidates of which anchor, and which of them are no negatives.
#
# An anchor's own positive may be in the batch again, as may another text that belongs to it, or the
# anchor itself.  None of them is a negative.  B examples, C candidates.


@dataclass(frozen=True)
class PairLabel:
    """The texts of an example by number; equal texts have one.

    Args:
        texts: of the anchor, its positive and its negatives.
        related: ascending, of the anchor and of all texts that any example has as its positive.
    """

    texts: tuple[int, ...]
    related: tuple[int, ...]


class TextNumbers:
    """Numbers of the texts of examples, and what belongs to each anchor."""

    def __init__(self, examples: Sequence[VectorExample]) -> None:
        texts = dict.fromkeys(text for one in examples for text in one.texts)
        self._number_of = {text: number for number, text in enumerate(texts)}
        self._related: dict[str, set[int]] = {}
        for one in examples:
            anchor, positive = one.texts[:2]
            known = self._related.setdefault(anchor, {self._number_of[anchor]})
            known.add(self._number_of[positive])

    def label(self, example: VectorExample) -> PairLabel:
        """What the loss needs to know of an example."""
        texts = tuple(self._number_of[text] for text in example.texts)
        return PairLabel(texts, tuple(sorted(self._related[example.texts[0]])))


def candidate_rows(
    features: Sequence[Features],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Rows of the batch's vectors: (B,) the anchors; (C,) all positives, then all negatives."""
    counts = np.array([len(one.lengths) for one in features])
    firsts = np.cumsum(counts) - counts
    negatives = [
        np.arange(first + 2, first + count) for first, count in zip(firsts, counts, strict=True)
    ]
    return firsts, np.concatenate([firsts + 1, *negatives])


def ignored_candidates(labels: Sequence[PairLabel]) -> npt.NDArray[np.bool_]:
    """(B, C) whether a candidate is no negative of an anchor; its own positive is not ignored."""
    candidates = [one.texts[1] for one in labels]
    candidates += [text for one in labels for text in one.texts[2:]]
    places: dict[int, list[int]] = {}
    for place, text in enumerate(candidates):
        places.setdefault(text, []).append(place)
    ignored = np.zeros((len(labels), len(candidates)), dtype=np.bool_)
    for anchor, one in enumerate(labels):
        for text in one.related:
            ignored[anchor, places.get(text, [])] = True
    own = np.arange(len(labels))
    ignored[own, own] = False
    return ignored


# The checks of texts that belong together, before vectors are trained on them.

_SIDES = {"first": 0, "second": 1}


def examine(form: Form, data: TrainingData[VectorExample], report: DataReport) -> None:
    """Add the findings in examples of a form to a report."""
    wanted = "pairs" if form == "texts" else form
    if data.held_out and (found := _form_of_dev(data.held_out)) != wanted:
        report.errors.append(
            f"the training examples are {FORM_NAMES[form]}, and the dev examples are "
            f"{FORM_NAMES.get(found, found)}; give {FORM_NAMES[wanted]} as {param('dev')}, and "
            "measure on other files with evaluate"
        )
        return
    warn_of_empty(report, data, _is_empty, noun="text")
    if form == "texts":
        check_lengths(report, data, has_windows=False)
        return
    {"pairs": _check_pairs, "scores": _check_scores, "labels": _check_labels}[form](data, report)
    noun = "text" if form == "labels" else "pair"
    check_leaks(report, data, lambda one: one.texts[:2], noun=noun)
    check_lengths(report, data, has_windows=False)
    if form != "labels":
        for part, _, features in data.parts():
            report.facts += [_lengths(part, side, features) for side in _SIDES if features]


def _form_of_dev(examples: Sequence[VectorExample]) -> Any:
    try:
        return form_of(examples)
    except DataError:
        return "of several kinds"


def _is_empty(one: VectorExample) -> bool:
    return not all(text.strip() for text in one.texts)


def _check_pairs(data: TrainingData[VectorExample], report: DataReport) -> None:
    _count_texts(data, report)
    _warn_of_equal(data, report)
    numbers = [len(one.negatives) for one in data.train]
    if any(numbers):
        least, most = min(numbers), max(numbers)
        shown = f"{least}" if least == most else f"{least} to {most}"
        report.facts.append(f"negatives: {shown} an example")
    labels = Counter(one.label for one in data.train if one.label is not None)
    apart = {name: count for name, count in labels.items() if name.casefold() in _APART}
    if apart:
        report.errors.append(
            f"labels of pairs that do not belong together: {listed(apart, SHOWN)}; leave these "
            "pairs out, or give their second texts as negatives"
        )
    elif labels:
        report.warnings.append(
            f"labels of pairs that are no scores, and not read: {listed(labels, SHOWN)}; leave out "
            "pairs that do not belong together"
        )
    positives: dict[str, set[str]] = {}
    for _, examples, _ in data.parts():
        for one in examples:
            positives.setdefault(one.texts[0], set()).add(one.texts[1])

    def contradicts(one: VectorExample) -> bool:
        return not positives[one.texts[0]].isdisjoint(one.negatives)

    for counted, lines in data.those(contradicts):
        report.warnings.append(
            f"{counted} with a negative that is a positive of the same first text ({lines}); it is "
            "not used as a negative"
        )
    check_repetition(
        report, data, lambda one: one.texts, lambda _one: None, noun="texts", label="label"
    )
    if len({one.texts[1] for one in data.train}) == 1:
        report.errors.append(
            "every training example has the same second text, so no other one can be told from it "
            f"(is {param('text_pair')} the right column?)"
        )


def _check_scores(data: TrainingData[VectorExample], report: DataReport) -> None:
    _count_texts(data, report)
    _warn_of_equal(data, report)
    scores = [one.score for one in data.train if one.score is not None]
    report.score_range = min(scores), max(scores)
    if min(scores) == max(scores):
        report.errors.append(
            f"every training score is {scores[0]:g}; there is nothing to learn (is "
            f"{param('label')} the right column? {param('loss', 'infonce')} learns from pairs "
            "without scores)"
        )
    check_repetition(
        report, data, lambda one: one.texts, lambda one: one.score, noun="pair", label="score"
    )


def _check_labels(data: TrainingData[VectorExample], report: DataReport) -> None:
    counts = Counter(str(one.label) for one in data.train)
    report.label_counts = {name: counts[name] for name in sorted(counts, key=label_order)}
    if len(counts) == 1:
        report.errors.append(
            f"every training example has the label {short(next(iter(counts)))}; two at least are "
            f"needed (is {param('label')} the right column?)"
        )
    elif max(counts.values()) == 1:
        report.errors.append("no two training examples have one label, so no text is near another")
    lone = sum(count == 1 for count in counts.values())
    if lone:
        report.warnings.append(
            f"{count_of(lone, 'label')} with a single training example, which is near no other; "
            "add examples, or merge labels"
        )
    if data.held_out and max(Counter(one.label for one in data.held_out).values()) == 1:
        report.errors.append("no two dev examples have one label, so nothing can be measured")
    check_repetition(
        report, data, lambda one: one.texts, lambda one: one.label, noun="text", label="label"
    )


def _count_texts(data: TrainingData[VectorExample], report: DataReport) -> None:
    firsts, seconds = (len({one.texts[at] for one in data.train}) for at in (0, 1))
    report.facts.append(f"different texts in train: {firsts:,} first, {seconds:,} second")


def _warn_of_equal(data: TrainingData[VectorExample], report: DataReport) -> None:
    for counted, lines in data.those(lambda one: one.texts[0] == one.texts[1]):
        report.warnings.append(
            f"{counted} with equal first and second texts ({lines}), which teach nothing; remove "
            "them"
        )
    known = {one.texts[0] for one in data.train}
    shared = [one.row for one in data.held_out if one.texts[0] in known]
    if shared:
        report.facts.append(
            f"{count_of(len(shared), 'dev example')} with a first text that a training example has "
            f"too ({lines_of(shared)} of dev)"
        )


def _lengths(part: str, side: str, features: Sequence[Features]) -> str:
    """The tokens of one side's texts, as they are read."""
    lengths = [one.lengths[_SIDES[side]] for one in features]
    shown = np.percentile(lengths, PERCENTILES, method="higher")
    parts = [f"{int(value):,} ({name}%)" for name, value in zip(PERCENTILES, shown, strict=True)]
    return f"tokens of {side} texts, {part}: {', '.join(parts)}, {max(lengths):,} (max)"
