"""The checks of texts that belong together, before vectors are trained on them."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from tidybert.data.checks import (
    PERCENTILES,
    DataReport,
    TrainingData,
    check_leaks,
    check_lengths,
    check_repetition,
    lines_of,
    short,
    warn_of_empty,
)
from tidybert.data.features import Features
from tidybert.errors import DataError, param
from tidybert.files.labels import label_order
from tidybert.files.wording import count_of
from tidybert.tasks.vectors.vector_examples import FORM_NAMES, Form, VectorExample, form_of

_SIDES = {"first": 0, "second": 1}


def examine(form: Form, data: TrainingData[VectorExample], report: DataReport) -> None:
    """Add the findings in examples of a form to a report."""
    if data.held_out and (found := _form_of_dev(data.held_out)) != form:
        report.errors.append(
            f"the training examples are {FORM_NAMES[form]}, and the dev examples are "
            f"{FORM_NAMES.get(found, found)}; give {param('dev')} like {param('train')}, and "
            "measure on other files with evaluate"
        )
        return
    warn_of_empty(report, data, _is_empty, noun="text")
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
