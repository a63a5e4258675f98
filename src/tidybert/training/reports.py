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
    """How a run ended: ``metrics`` of the best step; the sums are of this process's part of it."""

    num_steps: int
    best_step: int
    metrics: dict[str, Any]
    seconds: float
    num_examples: int
    num_tokens: int
    num_bad_steps: int = 0
    stopped_early: bool = False
    resumed_from: int = 0
