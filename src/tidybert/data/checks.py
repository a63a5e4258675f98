"""What is worth knowing of labelled examples before training: errors that stop it, and warnings."""

import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from tidybert.data.features import Features, first_features
from tidybert.errors import LINE, DataError, in_python, param
from tidybert.files.labels import finite_number, label_order
from tidybert.files.text_examples import TextExample
from tidybert.files.wording import count_of

Kind = Literal["classify", "multi-label", "regress"]

LINE_WIDTH: Final = 80
SHOWN: Final = 5
IMBALANCE_RATIO: Final = 10.0
LONGEST_SEQUENCE: Final = 512  # positions of the published models
PERCENTILES: Final = (50, 90, 95, 99)
# "none" and "n/a" are names of classes too.
_MISSING_LABELS: Final = ("nan", "<na>", "null")


@dataclass
class DataReport:
    """What `check_examples` found; ``errors`` stop training, ``warnings`` do not."""

    kind: str
    num_train: int
    num_dev: int | None
    """None where no dev examples were given."""
    label_counts: dict[str, int] = field(default_factory=dict)
    """Training examples of each class, in the order of the class indices; empty for scores."""
    score_range: tuple[float, float] | None = None
    """Least and greatest training score."""
    num_tokens: dict[str, dict[str, int]] = field(default_factory=dict)
    """By part (train, dev): the 50, 90, 95, 99 percentiles and max of tokens an example."""
    num_truncated: dict[str, int] = field(default_factory=dict)
    """By part: examples longer than max_seq_length."""
    facts: list[str] = field(default_factory=list)
    """What else a task tells of its data, a line each."""
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """The report as plain text, at most 80 columns wide."""
        dev = "" if self.num_dev is None else f", {self.num_dev:,} to evaluate"
        paragraphs = [f"{count_of(self.num_train, 'example')} to train{dev}"]
        if self.label_counts:
            paragraphs.append("classes: " + _listed(self.label_counts, 12))
        if self.score_range:
            paragraphs.append(f"scores from {self.score_range[0]:g} to {self.score_range[1]:g}")
        for part, lengths in self.num_tokens.items():
            shown = ", ".join(
                f"{value:,} ({name if name == 'max' else name + '%'})"
                for name, value in lengths.items()
            )
            paragraphs.append(f"tokens, {part}: {shown}")
        paragraphs += self.facts
        paragraphs += [f"warning: {message}" for message in self.warnings]
        paragraphs += [f"error: {message}" for message in self.errors]
        return [
            line
            for paragraph in paragraphs
            for line in textwrap.wrap(
                paragraph, LINE_WIDTH, subsequent_indent="  ", break_on_hyphens=False
            )
        ]

    def raise_on_errors(self) -> None:
        """Raise DataError with every error, if there is one."""
        if self.errors:
            raise DataError("\n".join(["these data cannot be trained on:", *self.errors]))

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON can hold it, its messages in Python's words."""
        told = ("facts", "errors", "warnings")
        return asdict(self) | {name: [*map(in_python, getattr(self, name))] for name in told}


def check_examples(
    train: Sequence[TextExample],
    dev: Sequence[TextExample] | None,
    train_features: Sequence[Features],
    dev_features: Sequence[Features],
    *,
    kind: Kind,
    max_seq_length: int,
) -> DataReport:
    """Examine texts before training.

    For ``regress`` each label must spell a finite number, as `read_examples` with ``scores`` sees
    to.
    """
    report = DataReport(kind, len(train), None if dev is None else len(dev))
    if not train:
        report.errors.append("there are no training examples")
        return report
    if dev is not None and not dev:
        report.errors.append("there are no dev examples")
    if kind == "classify":
        _check_classes(report, train, dev or ())
    elif kind == "multi-label":
        _check_label_sets(report, train, dev or ())
    else:
        _check_scores(report, train)
    for part, examples in (("training", train), ("dev", dev or ())):
        empty = [
            one.row
            for one in examples
            if not one.text.strip() or (one.text_pair is not None and not one.text_pair.strip())
        ]
        warn_of_empty_texts(report, part, empty)
    _check_duplicates(report, train, dev or ())
    check_lengths(report, train_features, dev_features, max_seq_length)
    return report


def _check_classes(
    report: DataReport, train: Sequence[TextExample], dev: Sequence[TextExample]
) -> None:
    counts = Counter(_label(example) for example in train)
    report.label_counts = {name: counts[name] for name in sorted(counts, key=label_order)}
    if len(counts) == 1:
        report.errors.append(
            f"every training example has the label {_short(next(iter(counts)))}; two classes at "
            f"least are needed (is {param('label')} the right column?)"
        )
    in_dev = Counter(_label(example) for example in dev)
    missing = [one.row for one in train if _label(one).casefold() in _MISSING_LABELS]
    if missing:
        report.warnings.append(
            f"{count_of(len(missing), 'training example')} with a label such as 'nan', which "
            f"spells a missing value ({lines_of(missing)}) and is learned as a class; leave these "
            "rows out if it is none"
        )
    _check_unknown(report, counts, in_dev)
    if len(in_dev) == 1:
        report.warnings.append(
            f"every dev example has the label {_short(next(iter(in_dev)))}, so the dev metrics "
            "tell nothing of the other classes"
        )
    _check_lone(report)
    (common, most), (rare, least) = counts.most_common()[0], counts.most_common()[-1]
    if most >= IMBALANCE_RATIO * least:
        report.warnings.append(
            f"the classes are unbalanced: {_short(common)} has {count_of(most, 'example')}, "
            f"{_short(rare)} {least:,}; judge by macro_f1, and try "
            f"{param('class_weight', 'balanced')}"
        )


def _check_label_sets(
    report: DataReport, train: Sequence[TextExample], dev: Sequence[TextExample]
) -> None:
    counts = Counter(label for example in train for label in _labels(example))
    report.label_counts = {name: counts[name] for name in sorted(counts, key=label_order)}
    if not counts:
        report.errors.append(
            f"no training example has a label (is {param('label')} the right column?)"
        )
        return
    bare = sum(not example.labels for example in train)
    report.facts.append(
        f"labels: {counts.total() / len(train):.2f} a text on average; {bare:,} texts have none"
    )
    in_dev = Counter(label for example in dev for label in _labels(example))
    if counts.keys() == {"0", "1"}:
        report.warnings.append(
            f"the labels are '0' and '1'; if {param('label')} names a column that says whether a "
            f"text has a label, name one for each label, as in {param('label', 'toxic,insult')}, "
            f"or leave {param('multi_label')} out"
        )
    _check_unknown(report, counts, in_dev)
    absent = {name: count for name, count in report.label_counts.items() if name not in in_dev}
    if dev and absent:
        report.warnings.append(
            f"labels that no dev example has: {_listed(absent, SHOWN)} in training; the dev "
            "metrics hold them to be missed, and their thresholds cannot be tuned"
        )
    _check_lone(report)


def _check_unknown(report: DataReport, counts: Counter[str], in_dev: Counter[str]) -> None:
    unknown = {name: in_dev[name] for name in sorted(in_dev, key=label_order) if name not in counts}
    if unknown:
        report.errors.append(
            f"labels of dev examples that no training example has: {_listed(unknown, SHOWN)}; "
            "spell the labels alike in both files, or add training examples"
        )


def _check_lone(report: DataReport) -> None:
    lone = {name: count for name, count in report.label_counts.items() if count == 1}
    if lone:
        names = ", ".join(_short(name) for name in list(lone)[:SHOWN])
        more = f" and {len(lone) - SHOWN} more" if len(lone) > SHOWN else ""
        report.warnings.append(
            f"classes with a single training example: {names}{more}; add examples, or merge the "
            "class with another (a header read as data looks like this too)"
        )


def _check_scores(report: DataReport, train: Sequence[TextExample]) -> None:
    scores = [finite_number(_label(example)) for example in train]
    if None in scores:
        row = train[scores.index(None)].row
        report.errors.append(f"the score on {LINE} {row} is no finite number")
        return
    numbers = [score for score in scores if score is not None]
    report.score_range = (min(numbers), max(numbers))
    if min(numbers) == max(numbers):
        report.errors.append(
            f"every training score is {numbers[0]:g}; there is nothing to learn (is "
            f"{param('label')} the right column?)"
        )


def warn_of_empty_texts(report: DataReport, part: str, rows: Sequence[int]) -> None:
    """Warn of the examples on these lines, if there are any."""
    if rows:
        report.warnings.append(
            f"{count_of(len(rows), f'{part} example')} with an empty text ({lines_of(rows)}); "
            "remove them, or fill them in"
        )


def _check_duplicates(
    report: DataReport, train: Sequence[TextExample], dev: Sequence[TextExample]
) -> None:
    labels_of: dict[tuple[str, str | None], set[object]] = {}
    repeated: list[int] = []
    for example in train:
        seen = labels_of.setdefault((example.text, example.text_pair), set())
        value: object
        if report.kind == "multi-label":
            value = frozenset(_labels(example))
        else:
            value = _label(example) if report.kind == "classify" else finite_number(_label(example))
        if value in seen:
            repeated.append(example.row)
        seen.add(value)
    if repeated:
        report.warnings.append(
            f"{count_of(len(repeated), 'training example')} repeating an earlier one, text and "
            f"label ({lines_of(repeated)})"
        )
    torn = {text for text, labels in labels_of.items() if len(labels) > 1}
    if torn:
        rows = [e.row for e in train if (e.text, e.text_pair) in torn]
        report.warnings.append(
            f"{count_of(len(torn), 'text')} with contradictory labels, in {len(rows):,} training "
            f"examples ({lines_of(rows)}); decide on one label for each"
        )
    shared = [e.row for e in dev if (e.text, e.text_pair) in labels_of]
    if shared:
        report.warnings.append(
            f"{count_of(len(shared), 'dev example')} of {len(dev):,} with a text that stands in "
            f"the training examples too ({lines_of(shared)} of dev), so the dev metrics flatter "
            "the model; remove them from one of the two"
        )


def check_lengths(
    report: DataReport,
    train_features: Sequence[Features],
    dev_features: Sequence[Features],
    max_seq_length: int,
) -> None:
    """Tell how long the examples are, and warn of those that lose something."""
    longest = 0
    told = []
    lost: list[npt.NDArray[np.int64]] = []
    for part, features in (("train", train_features), ("dev", dev_features)):
        if not features:
            continue
        truncated = count_tokens(report, part, features)
        if len(truncated):
            longest = max(longest, int(truncated.max()))
            lost.append(truncated)
            count = len(first_features(features))
            told.append(f"{len(truncated):,} of {count:,} {part} ({len(truncated) / count:.1%})")
    if not told:
        return
    enough = min(longest, LONGEST_SEQUENCE)
    advice = f"{param('max_seq_length', enough)} would keep them whole, at the cost of time"
    if longest > LONGEST_SEQUENCE:
        beyond = int((np.concatenate(lost) > LONGEST_SEQUENCE).sum())
        split = (
            f"read them whole with {param('long', 'windows')}, or split them into several examples"
        )
        advice = (
            f"{beyond:,} of them are longer than {LONGEST_SEQUENCE} tokens; {split}"
            if max_seq_length >= LONGEST_SEQUENCE
            else f"{param('max_seq_length', enough)} would keep all but {beyond:,} whole; there, "
            f"{split}"
        )
    report.warnings.append(
        f"examples longer than {param('max_seq_length', max_seq_length)} lose a part: "
        f"{' and '.join(told)}; {advice}"
    )


def count_tokens(
    report: DataReport, part: str, features: Sequence[Features]
) -> npt.NDArray[np.int64]:
    """Tell how long the examples of a part are; returns the lengths of those that are truncated."""
    firsts = first_features(features)
    lengths = np.array([one.num_tokens for one in firsts])
    percentiles = np.percentile(lengths, PERCENTILES, method="higher")
    report.num_tokens[part] = {
        **{str(p): int(value) for p, value in zip(PERCENTILES, percentiles, strict=True)},
        "max": int(lengths.max()),
    }
    truncated = lengths[[one.truncated for one in firsts]]
    report.num_truncated[part] = len(truncated)
    return truncated


def _label(example: TextExample) -> str:
    if example.label is None:
        raise DataError(f"{LINE} {example.row}: the example has no label; training needs one")
    return example.label


def _labels(example: TextExample) -> tuple[str, ...]:
    if example.labels is None:
        raise DataError(f"{LINE} {example.row}: the example has no list of labels; it needs one")
    return example.labels


def _short(name: str) -> str:
    return repr(name if len(name) <= 30 else name[:29] + "…")


def _listed(counts: dict[str, int], shown: int) -> str:
    parts = [f"{_short(name)} {count:,}" for name, count in list(counts.items())[:shown]]
    more = f" and {len(counts) - shown} more" if len(counts) > shown else ""
    return ", ".join(parts) + more


def lines_of(rows: Sequence[int]) -> str:
    """Where something was found: lines 3, 7 and 9 more."""
    parts = ", ".join(str(row) for row in rows[:SHOWN])
    more = f" and {len(rows) - SHOWN:,} more" if len(rows) > SHOWN else ""
    return f"{LINE}{'' if len(rows) == 1 else 's'} {parts}{more}"
