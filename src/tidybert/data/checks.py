"""The report on examples before training, and the checks that tasks share.

Each task passes its own keys and words; errors stop training, warnings do not.
"""

import textwrap
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from tidybert.data.features import Features, UnknownTokens, first_features
from tidybert.errors import LINE, DataError, DataWarning, TruncationWarning, in_python, param
from tidybert.files.rows import count_of
from tidybert.files.text_examples import label_order
from tidybert.system.terminal import warn_user
from tidybert.tokenization import BertTokenizer

LINE_WIDTH: Final = 80
SHOWN: Final = 5
SHOWN_CLASSES: Final = 12
LONGEST_SEQUENCE: Final = 512  # positions of the published models
# Programs and people write these where there is nothing; "none" may also be a class.
_MISSING_LABELS: Final = frozenset(
    ("-", "nan", "<na>", "na", "n/a", "#n/a", "null", "nil", "none", "undefined", "missing")
)
# What a label looks without: spaces, control characters and marks of no width.
_UNSEEN: Final = ("Cc", "Cf", "Zs")
_SEPARATORS: Final = {";": "semicolon", "|": "pipe", ",": "comma"}
PERCENTILES: Final = (50, 90, 95, 99)


class Example(Protocol):
    """The one thing that the examples of all tasks have."""

    @property
    def row(self) -> int:
        """The 1-based line of the file."""
        ...


E = TypeVar("E", bound=Example)


class Loss(str):
    """A warning that examples are cut; its category in Python is TruncationWarning."""


@dataclass
class DataReport:
    """The findings of a task's checks; ``errors`` stop training, ``warnings`` do not."""

    task: str
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
    """Further findings, a line each."""
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def lines(
        self, spell: Callable[[str], str] = in_python, *, with_warnings: bool = True
    ) -> list[str]:
        """The report as plain text, at most 80 columns wide; ``spell`` writes the parameters."""
        dev = "" if self.num_dev is None else f", {self.num_dev:,} to evaluate"
        paragraphs = [f"{count_of(self.num_train, 'example')} to train{dev}"]
        if self.label_counts:
            paragraphs.append("classes: " + listed(self.label_counts, SHOWN_CLASSES))
        if self.score_range:
            paragraphs.append(f"scores from {self.score_range[0]:g} to {self.score_range[1]:g}")
        for part, lengths in self.num_tokens.items():
            shown = ", ".join(
                f"{value:,} ({name if name == 'max' else name + '%'})"
                for name, value in lengths.items()
            )
            paragraphs.append(f"tokens, {part}: {shown}")
        paragraphs += self.facts
        paragraphs += [f"warning: {message}" for message in self.warnings if with_warnings]
        paragraphs += [f"error: {message}" for message in self.errors]
        return [
            line
            for paragraph in paragraphs
            for line in textwrap.wrap(
                spell(paragraph), LINE_WIDTH, subsequent_indent="  ", break_on_hyphens=False
            )
        ]

    def warn(self, rows: str = "line") -> None:
        """Make a Python warning of each, at the line of the caller; ``rows``: line, position."""
        for finding in self.warnings:
            category = TruncationWarning if isinstance(finding, Loss) else DataWarning
            warn_user(in_python(finding, rows=rows), category)

    def raise_on_errors(self) -> None:
        """Raise DataError with every error, if there is one."""
        if self.errors:
            raise DataError("\n".join(["these data cannot be trained on:", *self.errors]))

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON can hold it, its messages in Python's words."""
        texts = ("facts", "errors", "warnings")
        return asdict(self) | {name: [*map(in_python, getattr(self, name))] for name in texts}


@dataclass(frozen=True)
class TrainingData(Generic[E]):
    """Labelled examples, cut to ``max_seq_length``, to train on and, unless None, to measure on."""

    train: Sequence[E]
    dev: Sequence[E] | None
    train_features: Sequence[Features]
    dev_features: Sequence[Features]
    max_seq_length: int
    tokenizer: BertTokenizer | None = None
    """The one that made the features, to say how much of the texts it does not know."""

    @property
    def held_out(self) -> Sequence[E]:
        """The dev examples, if there are any."""
        return self.dev or ()

    def parts(self) -> Iterator[tuple[str, Sequence[E], Sequence[Features]]]:
        """The name, examples and features of both parts."""
        yield "train", self.train, self.train_features
        yield "dev", self.held_out, self.dev_features

    def those(self, belongs: Callable[[E], bool]) -> Iterator[tuple[str, str]]:
        """For each part with examples that belong: "3 training examples", and "lines 2, 3, 5"."""
        for part, examples, _ in self.parts():
            rows = [one.row for one in examples if belongs(one)]
            if rows:
                name = "training" if part == "train" else part
                yield count_of(len(rows), f"{name} example"), lines_of(rows)

    def report(self, task: str) -> DataReport:
        """A report that has only found out whether a part is empty, and what is unknown."""
        report = DataReport(task, len(self.train), None if self.dev is None else len(self.dev))
        if not self.train:
            report.errors.append("the training data hold no example")
        elif self.dev is not None and not self.dev:
            report.errors.append("the dev data hold no example")
        if self.tokenizer is not None:
            found = UnknownTokens(self.tokenizer).add(self.train_features).add(self.dev_features)
            report.warnings += filter(None, [found.remark()])
        return report


def check_labels(
    report: DataReport, counts: Counter[str], in_dev: Counter[str], nouns: str, *, remedy: str
) -> None:
    """Count the labels; unknown ones of dev are errors, odd or lone ones warnings."""
    report.label_counts = {name: counts[name] for name in sorted(counts, key=label_order)}
    unknown = {name: in_dev[name] for name in sorted(in_dev, key=label_order) if name not in counts}
    if unknown:
        report.errors.append(
            f"{nouns} of dev examples that no training example has: {listed(unknown, SHOWN)}; "
            f"spell the {nouns} alike in both, or add training examples"
        )
    missing = {
        name: count
        for name, count in report.label_counts.items()
        if name.casefold() in _MISSING_LABELS
    }
    if missing:
        report.warnings.append(
            f"{nouns} that spell a missing value: {listed(missing, SHOWN)}; they are learned like "
            "any other, so leave these examples out if nothing is meant"
        )
    spellings: dict[str, dict[str, int]] = {}
    for name, count in (counts + in_dev).items():
        spellings.setdefault(_look(name), {})[name] = count
    alike = [each for each in spellings.values() if len(each) > 1]
    if alike:
        shown = "; ".join(map(_told_apart, alike[:SHOWN]))
        more = f"; and {len(alike) - SHOWN} more" if len(alike) > SHOWN else ""
        report.warnings.append(
            f"{nouns} that differ only in case or spaces, or look alike: {shown}{more}; spell them "
            "alike"
        )
    lone = [name for name, count in report.label_counts.items() if count == 1]
    if lone:
        names = ", ".join(map(short, lone[:SHOWN]))
        more = f" and {len(lone) - SHOWN} more" if len(lone) > SHOWN else ""
        report.warnings.append(f"{nouns} with a single training example: {names}{more}; {remedy}")


def _look(name: str) -> str:
    """A label as people see it: without case, spaces, and characters of no width."""
    plain = unicodedata.normalize("NFKC", name).casefold()
    return "".join(char for char in plain if unicodedata.category(char) not in _UNSEEN)


def _told_apart(counts: Mapping[str, int]) -> str:
    """Labels that look alike with their counts, in ASCII where they have the same letters."""
    same = len({unicodedata.normalize("NFKC", name) for name in counts}) < len(counts)
    spell = ascii if same else repr
    return " and ".join(f"{spell(name)} {count:,}" for name, count in counts.items())


def check_joined(report: DataReport, labels: Collection[str], *, are_several: bool) -> None:
    """Warn of labels that look like several joined into one; say what reads them apart."""
    for mark, name in _SEPARATORS.items():
        parts = Counter(part.strip() for label in labels for part in set(label.split(mark)))
        joined = [one for one in labels if any(parts[each.strip()] > 1 for each in one.split(mark))]
        joined = [one for one in joined if mark in one]
        if joined:
            flags = [] if are_several else [param("multi_label", True)]
            flags += [param("label_separator", name)] if name != "comma" else []
            report.warnings.append(
                f"labels that look like several with {mark!r} between them, such as "
                f"{short(joined[0])}: {' and '.join(flags)} would read them apart"
            )


def check_repetition(
    report: DataReport,
    data: TrainingData[E],
    key: Callable[[E], Hashable],
    answer: Callable[[E], Hashable],
    *,
    noun: str,
    label: str,
    warn_repeated: bool = True,
) -> None:
    """Warn of examples that occur twice, or with several answers."""
    seen: dict[Hashable, set[Hashable]] = {}
    repeated: list[int] = []
    for one in data.train:
        known = seen.setdefault(key(one), set())
        if answer(one) in known:
            repeated.append(one.row)
        known.add(answer(one))
    if repeated and warn_repeated:
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
    """Warn of dev examples that read like a training example, named by ``where`` or their lines."""
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
    for counted, lines in data.those(is_empty):
        report.warnings.append(
            f"{counted} with an empty {noun} ({lines}); remove them, or fill them in"
        )


def check_lengths(report: DataReport, data: TrainingData[Any], *, has_windows: bool = True) -> None:
    """Report how long the examples are, and warn of those that lose something."""
    longest = 0
    lossy = []
    lost: list[npt.NDArray[np.int64]] = []
    for part, _, features in data.parts():
        if not features:
            continue
        truncated = count_tokens(report, part, features)
        if len(truncated):
            longest = max(longest, int(truncated.max()))
            lost.append(truncated)
            count = len(first_features(features))
            lossy.append(f"{len(truncated):,} of {count:,} {part} ({len(truncated) / count:.1%})")
    if not lossy:
        return
    enough = min(longest, LONGEST_SEQUENCE)
    advice = f"{param('max_seq_length', enough)} would keep them whole, at the cost of time"
    if longest > LONGEST_SEQUENCE:
        beyond = int((np.concatenate(lost) > LONGEST_SEQUENCE).sum())
        windows = f"read them whole with {param('long', 'windows')}, or " if has_windows else ""
        split = f"{windows}split them into several examples"
        advice = (
            f"{beyond:,} of them are longer than {LONGEST_SEQUENCE} tokens; {split}"
            if data.max_seq_length >= LONGEST_SEQUENCE
            else f"{param('max_seq_length', enough)} would keep all but {beyond:,} whole; there, "
            f"{split}"
        )
    report.warnings.append(
        Loss(
            f"examples longer than {param('max_seq_length', data.max_seq_length)} lose a part: "
            f"{' and '.join(lossy)}; {advice}"
        )
    )


def count_tokens(
    report: DataReport, part: str, features: Sequence[Features]
) -> npt.NDArray[np.int64]:
    """Report how long a part's examples are; returns the lengths of the truncated ones."""
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


def short(name: str) -> str:
    """A label as a message shows it."""
    return repr(name if len(name) <= 30 else name[:29] + "…")


def listed(counts: Mapping[str, int], shown: int) -> str:
    """The first labels with their counts, and how many more there are."""
    parts = [f"{short(name)} {count:,}" for name, count in list(counts.items())[:shown]]
    more = f" and {len(counts) - shown} more" if len(counts) > shown else ""
    return ", ".join(parts) + more
