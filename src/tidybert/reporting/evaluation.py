"""Evaluation: everything that a report is made of, as plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tidybert.metrics.bootstrap import Intervals
from tidybert.reporting.training_history import TrainingHistory


class Judgement(Protocol):
    """How one example was answered; see ``tidybert.tasks.task.Judgement``."""

    @property
    def text(self) -> str: ...
    @property
    def expected(self) -> str: ...
    @property
    def predicted(self) -> str: ...
    @property
    def correct(self) -> float | None: ...
    @property
    def confidence(self) -> float | None: ...
    @property
    def expected_probability(self) -> float | None: ...
    @property
    def num_tokens(self) -> int: ...
    @property
    def row(self) -> int: ...
    @property
    def id(self) -> str | None: ...


@dataclass(frozen=True)
class Evaluation:
    """A model measured on a labelled file.

    Args:
        task: its name, such as "classify".
        model: the RUN, as it was named.
        data: the file, as it was named.
        date: when it was measured, as it is to be shown.
        metrics: as the task gives them, numbers and tables, with the counts of an Examination.
        judgements: one an example.  Those without ``correct`` are of scores, and their expected
            and predicted spell numbers in full.
        max_seq_length: tokens that a sequence may have.
        truncation: what happened to the examples that lost a part, after "3 of 9 examples".
        meanings: what the metrics say, in the order they are shown.
        metric: the one that picked the model's weights.
        label_names: the classes in the order of their ids, where each example has one of them.
        probabilities: (N, C), of the classes; None where an answer is no class.
        temperature: the logits were divided by it; None where there is none.
        intervals: around the metrics.
        training: how the model came about.
    """

    task: str
    model: str
    data: str
    date: str
    metrics: Mapping[str, Any]
    judgements: Sequence[Judgement]
    max_seq_length: int
    truncation: str
    meanings: Mapping[str, str] = field(default_factory=dict)
    metric: str = ""
    label_names: Sequence[str] | None = None
    probabilities: npt.NDArray[np.float64] | None = None
    temperature: float | None = None
    intervals: Intervals | None = None
    training: TrainingHistory | None = None

    @property
    def of_scores(self) -> bool:
        """Whether the answers are numbers that are more or less near, not right or wrong."""
        return all(one.correct is None for one in self.judgements)

    def labels(self) -> npt.NDArray[np.int64]:
        """The class of each example, (N,)."""
        ids = {name: number for number, name in enumerate(self.label_names or ())}
        return np.array([ids[one.expected] for one in self.judgements], dtype=np.int64)
