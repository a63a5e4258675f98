"""Checks that tasks share before training: repeated, unknown, empty and too long examples.

Each task passes its own keys and words; errors stop training, warnings do not.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from tidybert.data.data_report import DataReport, listed, short
from tidybert.data.features import Features, first_features
from tidybert.errors import LINE, param
from tidybert.files.labels import label_order
from tidybert.files.wording import count_of

SHOWN: Final = 5
LONGEST_SEQUENCE: Final = 512  # positions of the published models
PERCENTILES: Final = (50, 90, 95, 99)


class _Example(Protocol):
    @property
    def row(self) -> int: ...


E = TypeVar("E", bound=_Example)


@dataclass(frozen=True)
class TrainingData(Generic[E]):
    """Labelled examples and their features, to train on and to measure on.

    Args:
        dev: None where nothing is measured.
        max_seq_length: the tokens that the features were cut to.
    """

    train: Sequence[E]
    dev: Sequence[E] | None
    train_features: Sequence[Features]
    dev_features: Sequence[Features]
    max_seq_length: int

    @property
    def held_out(self) -> Sequence[E]:
        """The dev examples, if there are any."""
        return self.dev or ()

    def parts(self) -> Iterator[tuple[str, Sequence[E], Sequence[Features]]]:
        """The name, examples and features of both parts."""
        yield "train", self.train, self.train_features
        yield "dev", self.held_out, self.dev_features

    def report(self, task: str) -> DataReport:
        """A report that has only found out whether a part is empty."""
        report = DataReport(task, len(self.train), None if self.dev is None else len(self.dev))
        if not self.train:
            report.errors.append("there are no training examples")
        elif self.dev is not None and not self.dev:
            report.errors.append("there are no dev examples")
        return report


def check_labels(
    report: DataReport, counts: Counter[str], in_dev: Counter[str], nouns: str, *, remedy: str
) -> None:
    """Count the labels; one that dev alone has is an error, one of a single example a warning.

    Args:
        nouns: what the labels are to the user: classes, tags.
        remedy: what to do about a label with a single example.
    """
    report.label_counts = {name: counts[name] for name in sorted(counts, key=label_order)}
    unknown = {name: in_dev[name] for name in sorted(in_dev, key=label_order) if name not in counts}
    if unknown:
        report.errors.append(
            f"{nouns} of dev examples that no training example has: {listed(unknown, SHOWN)}; "
            f"spell the {nouns} alike in both files, or add training examples"
        )
    lone = [name for name, count in report.label_counts.items() if count == 1]
    if lone:
        names = ", ".join(map(short, lone[:SHOWN]))
        more = f" and {len(lone) - SHOWN} more" if len(lone) > SHOWN else ""
        report.warnings.append(f"{nouns} with a single training example: {names}{more}; {remedy}")


def check_repetition(
    report: DataReport,
    data: TrainingData[E],
    key: Callable[[E], Hashable],
    answer: Callable[[E], Hashable],
    *,
    noun: str,
    label: str,
    tell_repeated: bool = True,
) -> None:
    """Warn of examples that occur twice, or with several answers.

    Args:
        key: equal for examples that read the same.
        answer: the example's label.
        noun: what reads the same: text, question.
        label: what the answer is to the user: label, tag.
        tell_repeated: whether equal examples with equal labels are worth a warning.
    """
    seen: dict[Hashable, set[Hashable]] = {}
    repeated: list[int] = []
    for one in data.train:
        known = seen.setdefault(key(one), set())
        if answer(one) in known:
            repeated.append(one.row)
        known.add(answer(one))
    if repeated and tell_repeated:
        report.warnings.append(
            f"{count_of(len(repeated), 'training example')} repeating an earlier one, {noun} and "
            f"{label} ({lines_of(repeated)})"
        )
    torn = {each for each, known in seen.items() if len(known) > 1}
    if torn:
        rows = [one.row for one in data.train if key(one) in torn]
        report.warnings.append(
            f"{count_of(len(torn), noun)} with contradictory {label}s, in {len(rows):,} training "
            f"examples ({lines_of(rows)}); decide on one {label} for each"
        )


def check_leaks(
    report: DataReport,
    data: TrainingData[E],
    key: Callable[[E], Hashable],
    *,
    noun: str,
    where: Callable[[Sequence[E]], str] | None = None,
) -> None:
    """Warn of dev examples that read like a training example; see ``check_repetition``.

    ``where`` names examples, by their lines if it is not given.
    """
    known = {key(one) for one in data.train}
    shared = [one for one in data.held_out if key(one) in known]
    if shared:
        places = where(shared) if where else f"{lines_of([one.row for one in shared])} of dev"
        report.warnings.append(
            f"{count_of(len(shared), 'dev example')} of {len(data.held_out):,} with a {noun} that "
            f"a training example has too ({places}), so the dev metrics flatter the model; remove "
            "them from one of the two"
        )


def warn_of_empty(
    report: DataReport, data: TrainingData[E], is_empty: Callable[[E], bool], *, noun: str
) -> None:
    """Warn of the examples that are empty."""
    for part, examples, _ in data.parts():
        rows = [one.row for one in examples if is_empty(one)]
        if rows:
            name = "training" if part == "train" else part
            report.warnings.append(
                f"{count_of(len(rows), f'{name} example')} with an empty {noun} "
                f"({lines_of(rows)}); remove them, or fill them in"
            )


def check_lengths(report: DataReport, data: TrainingData[Any]) -> None:
    """Tell how long the examples are, and warn of those that lose something."""
    longest = 0
    told = []
    lost: list[npt.NDArray[np.int64]] = []
    for part, _, features in data.parts():
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
            if data.max_seq_length >= LONGEST_SEQUENCE
            else f"{param('max_seq_length', enough)} would keep all but {beyond:,} whole; there, "
            f"{split}"
        )
    report.warnings.append(
        f"examples longer than {param('max_seq_length', data.max_seq_length)} lose a part: "
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


def lines_of(rows: Sequence[int]) -> str:
    """Where something was found: lines 3, 7 and 9 more."""
    parts = ", ".join(str(row) for row in rows[:SHOWN])
    more = f" and {len(rows) - SHOWN:,} more" if len(rows) > SHOWN else ""
    return f"{LINE}{'' if len(rows) == 1 else 's'} {parts}{more}"
