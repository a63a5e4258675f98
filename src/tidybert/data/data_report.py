"""DataReport: what was found in labelled examples before training on them."""

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from tidybert.errors import DataError, in_python
from tidybert.files.wording import count_of

LINE_WIDTH: Final = 80
_SHOWN_CLASSES: Final = 12


@dataclass
class DataReport:
    """What a task found; ``errors`` stop training, ``warnings`` do not."""

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

    def lines(self, spell: Callable[[str], str] = in_python) -> list[str]:
        """The report as plain text, at most 80 columns wide; ``spell`` writes the parameters."""
        dev = "" if self.num_dev is None else f", {self.num_dev:,} to evaluate"
        paragraphs = [f"{count_of(self.num_train, 'example')} to train{dev}"]
        if self.label_counts:
            paragraphs.append("classes: " + listed(self.label_counts, _SHOWN_CLASSES))
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
                spell(paragraph), LINE_WIDTH, subsequent_indent="  ", break_on_hyphens=False
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


def short(name: str) -> str:
    """A label as a message shows it."""
    return repr(name if len(name) <= 30 else name[:29] + "…")


def listed(counts: Mapping[str, int], shown: int) -> str:
    """The first labels with their counts, and how many more there are."""
    parts = [f"{short(name)} {count:,}" for name, count in list(counts.items())[:shown]]
    more = f" and {len(counts) - shown} more" if len(counts) > shown else ""
    return ", ".join(parts) + more
