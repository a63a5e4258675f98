"""What a training tells of each step, and how it ended."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


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
    """The result of one step, numbered from 1; ``updated``: loss and gradient were finite."""

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
    """How a run ended: ``metrics`` of the best step; the sums are of this process's part of it.

    stages: seconds of the whole run by what they were spent on, "steps" the last, if there are any.
    cross_validated: what a probe scores on examples that it was not fitted to, where none are held
        out to measure the model.
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
    stages: Mapping[str, float] = field(default_factory=dict)
    cross_validated: Mapping[str, Any] | None = None

    @property
    def steps_seconds(self) -> float:
        """Of ``seconds`` those in which it took steps."""
        before = sum(each for name, each in self.stages.items() if name != "steps")
        return self.seconds - (0.0 if self.resumed_from else before)
