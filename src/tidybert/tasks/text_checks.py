"""Checks of the labels of texts before training: classes, sets of labels, scores."""

from collections import Counter
from typing import Final

from tidybert.data.checks import SHOWN, TrainingData, check_labels, lines_of
from tidybert.data.data_report import DataReport, listed, short
from tidybert.errors import LINE, DataError, param
from tidybert.files.labels import finite_number, label_order
from tidybert.files.text_examples import TextExample
from tidybert.files.wording import count_of

IMBALANCE_RATIO: Final = 10.0
# "none" and "n/a" are names of classes too.
_MISSING_LABELS: Final = ("nan", "<na>", "null")
_LONE: Final = (
    "add examples, or merge the class with another (a header read as data looks like this too)"
)


def check_classes(report: DataReport, data: TrainingData[TextExample]) -> None:
    """One class a text."""
    counts = Counter(map(label_of, data.train))
    in_dev = Counter(map(label_of, data.held_out))
    if len(counts) == 1:
        report.errors.append(
            f"every training example has the label {short(next(iter(counts)))}; two classes at "
            f"least are needed (is {param('label')} the right column?)"
        )
    missing = [one.row for one in data.train if label_of(one).casefold() in _MISSING_LABELS]
    if missing:
        report.warnings.append(
            f"{count_of(len(missing), 'training example')} with a label such as 'nan', which "
            f"spells a missing value ({lines_of(missing)}) and is learned as a class; leave these "
            "rows out if it is not a class"
        )
    if len(in_dev) == 1:
        report.warnings.append(
            f"every dev example has the label {short(next(iter(in_dev)))}, so the dev metrics "
            "tell nothing of the other classes"
        )
    check_labels(report, counts, in_dev, "labels", remedy=_LONE)
    (common, most), (rare, least) = counts.most_common()[0], counts.most_common()[-1]
    if most >= IMBALANCE_RATIO * least:
        report.warnings.append(
            f"the classes are unbalanced: {short(common)} has {count_of(most, 'example')}, "
            f"{short(rare)} {least:,}; judge by macro_f1, and try "
            f"{param('class_weight', 'balanced')}"
        )


def check_label_sets(report: DataReport, data: TrainingData[TextExample]) -> None:
    """Any number of labels a text."""
    counts = Counter(label for one in data.train for label in labels_of(one))
    in_dev = Counter(label for one in data.held_out for label in labels_of(one))
    if not counts:
        report.errors.append(
            f"no training example has a label (is {param('label')} the right column?)"
        )
        return
    bare = sum(not one.labels for one in data.train)
    report.facts.append(
        f"labels: {counts.total() / len(data.train):.2f} a text on average; {bare:,} texts have "
        "none"
    )
    if counts.keys() == {"0", "1"}:
        report.warnings.append(
            f"the labels are '0' and '1'; if {param('label')} names a column that says whether a "
            f"text has a label, name one for each label, as in {param('label', 'toxic,insult')}, "
            f"or leave {param('multi_label')} out"
        )
    absent = {name: counts[name] for name in sorted(counts, key=label_order) if name not in in_dev}
    if data.held_out and absent:
        report.warnings.append(
            f"labels that no dev example has: {listed(absent, SHOWN)} in training; the dev "
            "metrics count them as missed, and their thresholds cannot be tuned"
        )
    check_labels(report, counts, in_dev, "labels", remedy=_LONE)


def check_scores(report: DataReport, data: TrainingData[TextExample]) -> None:
    """A number a text."""
    scores = [finite_number(label_of(one)) for one in data.train]
    if None in scores:
        row = data.train[scores.index(None)].row
        report.errors.append(f"the score on {LINE} {row} is not a finite number")
        return
    numbers = [score for score in scores if score is not None]
    report.score_range = (min(numbers), max(numbers))
    if min(numbers) == max(numbers):
        report.errors.append(
            f"every training score is {numbers[0]:g}; there is nothing to learn (is "
            f"{param('label')} the right column?)"
        )


def label_of(example: TextExample) -> str:
    """Its label; DataError where it has none."""
    if example.label is None:
        raise DataError(f"{LINE} {example.row}: the example has no label; training needs one")
    return example.label


def labels_of(example: TextExample) -> tuple[str, ...]:
    """Its labels, of any number; DataError where it has no list of them."""
    if example.labels is None:
        raise DataError(f"{LINE} {example.row}: the example has no list of labels; it needs one")
    return example.labels
