"""What a training tells: each step, each evaluation, lines of text, and how it ended."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tidybert.errors import in_python


@dataclass(frozen=True)
class Measured:
    """What a step's figures say.

    losses, accuracies: means by the name of a loss, where an objective has several.
    figures: others by their names, for the log; None is not known, and not logged.
    """

    loss: float
    losses: Mapping[str, float] = field(default_factory=dict)
    accuracies: Mapping[str, float] = field(default_factory=dict)
    figures: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class StepReport(Measured):
    """The result of one step.

    step: its number, from 1.  updated: whether the loss and the gradient were finite.
    epoch, num_examples, num_tokens: as in Work.
    """

    step: int
    num_steps: int
    epoch: float | None
    learning_rate: float
    gradient_norm: float
    num_examples: int
    num_tokens: int
    seconds: float
    updated: bool


@dataclass
class TrainingResult:
    """How a run ended: ``metrics`` are those of the best step, whose weights the model holds.

    seconds, num_examples, num_tokens: of this process's part of the run.
    """

    num_steps: int
    best_step: int
    metrics: dict[str, Any]
    seconds: float
    num_examples: int
    num_tokens: int
    num_bad_steps: int = 0
    stopped_early: bool = False
    resumed_from: int = 0


@dataclass(frozen=True)
class Notes:
    """Base of a run's callbacks.

    note: called with each line of text for the reader.
    spell: writes the parameters that a line names, as ``errors.in_python`` or ``in_shell`` do.
    track: called with figures by their names and their step, for each line that is logged.
    """

    note: Callable[[str], None] = lambda _line: None
    spell: Callable[[str], str] = in_python
    track: Callable[[Mapping[str, float], int], None] | None = None

    def plot(self, kind: str, figures: Mapping[str, float], step: int) -> None:
        """Give figures to ``track``, under names such as train/loss."""
        if self.track is not None:
            self.track({f"{kind}/{name}": value for name, value in figures.items()}, step)

    def tell(self, line: str) -> None:
        """Give a line to ``note``; work goes on where it cannot be written."""
        with suppress(OSError):
            self.note(self.spell(line))


@dataclass(frozen=True)
class TrainingCallbacks(Notes):
    """Functions that get lines of text, each step, and each evaluation's step and metrics.

    first_step: gets each step of a training that comes before, such as a contrastive one.
    """

    first_step: Callable[[StepReport], None] = lambda _done: None
    step: Callable[[StepReport], None] = lambda _done: None
    metrics: Callable[[int, dict[str, Any]], None] = lambda _step, _metrics: None
