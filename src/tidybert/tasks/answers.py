"""Answers: a model's outputs for some examples, measured and shown, each part computed once."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt

from tidybert.data.checks import E
from tidybert.data.features import Features, first_features
from tidybert.data.long_texts import window_counts
from tidybert.metrics.bootstrap import (
    MAX_SECONDS,
    NUM_RESAMPLES,
    Intervals,
    bootstrap,
    proportion_interval,
)
from tidybert.tasks.answer import Read, TaskAnswer

Outputs = Sequence[npt.NDArray[np.float32]]
"""The model's rows for each of the features, as many as the task's ``unit`` makes."""

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Judgement:
    """How one example was answered, for a report.

    Args:
        text: what was asked, as a person would read it.
        expected: the right answer.
        predicted: the model's answer.
        correct: 1 for right, 0 for wrong, or a share between; None for a score.
        confidence: the probability that the model gives its answer; None for a score.
        expected_probability: the probability of the right answer; None without classes.
        num_tokens: the length of the whole example.
        row: its line in the file.
        id: the file's own name for the example, if it has one.
    """

    text: str
    expected: str
    predicted: str
    correct: float | None
    confidence: float | None
    expected_probability: float | None
    num_tokens: int
    row: int
    id: str | None = None


@dataclass(frozen=True)
class Search:
    """What a search found: the nearest text that is right, and the nearest that is not.

    The scores are cosines.
    """

    query: str
    right: str
    right_score: float
    wrong: str
    wrong_score: float


@dataclass(frozen=True)
class ScoredEntities:
    """Entities with their scores, M of them, and which are right.

    num_true: how many the labels have.  threshold: the score from which they are given, if one was
    chosen.
    """

    scores: Floats
    right: npt.NDArray[np.bool_]
    num_true: int
    threshold: float | None = None


# A task.
T = TypeVar("T")


class Answers(ABC, Generic[T, E]):
    """The answers of a model to examples.

    Args:
        task: decodes the outputs, with its temperature and thresholds.
        outputs: one for each of the features; see ``inference.forward.run_features``.
        features: ``features[i]`` belongs to ``examples[features[i].example]``.  Metrics and
            judgements need their labels.
        examples: N of them.
    """

    def __init__(
        self, task: T, outputs: Outputs, features: Sequence[Features], examples: Sequence[E]
    ) -> None:
        self.task = task
        self.outputs = outputs
        self.features = features
        self.examples = examples

    def of(self, task: T | None) -> Self:
        """The same outputs as another task decodes them, with other thresholds."""
        return (
            self if task is None else type(self)(task, self.outputs, self.features, self.examples)
        )

    @abstractmethod
    def metrics(self, chosen: Indices | None = None) -> dict[str, Any]:
        """The scores by name.

        Args:
            chosen: numbers of examples, which may repeat: only the scores that are single numbers,
                and quickly.  None measures all examples, tables included.
        """

    def intervals(
        self, num_resamples: int = NUM_RESAMPLES, max_seconds: float = MAX_SECONDS
    ) -> Intervals:
        """Of each metric: Wilson's for the accuracy of whole examples, else a bootstrap's."""
        task: Any = self.task
        count = len(self.examples)
        drawn = bootstrap(self.metrics, count, num_resamples=num_resamples, max_seconds=max_seconds)
        if task.unit == "token" or "accuracy" not in (found := self.metrics()):
            return drawn
        accuracy = {"accuracy": proportion_interval(found["accuracy"], count)}
        return replace(drawn, by_name={**drawn.by_name, **accuracy})

    @abstractmethod
    def prediction(self, number: int) -> TaskAnswer | dict[str, Any]:
        """The answer to one example, or its dict, without how the example was read."""

    @abstractmethod
    def judgement(self, number: int) -> Judgement:
        """How one example was answered."""

    @property
    def class_probabilities(self) -> Floats | None:
        """(N, C) the probabilities of the classes; None where an answer is not one of them."""
        return None

    def searches(self) -> Sequence[Search]:
        """One a query, for a report; none where an answer is not a search."""
        return ()

    def entities_given(self) -> ScoredEntities | None:
        """Those in the answers, for a report; None where answers have none."""
        return None

    def entities_by_type(self) -> Mapping[str, ScoredEntities]:
        """All that may be there, given or not, for a report; empty without calibrated scores."""
        return {}

    def read(self, number: int) -> Read:
        """How one example was read."""
        one = self.first_features[number]
        return Read(num_tokens=one.num_tokens, truncated=one.truncated)

    def predictions(self) -> list[TaskAnswer]:
        """One answer an example, in order."""
        found = []
        for number in range(len(self.examples)):
            one = self.prediction(number)
            answer = one if isinstance(one, TaskAnswer) else TaskAnswer.of(one)
            found.append(replace(answer, read=self.read(number)))
        return found

    def judgements(self) -> Iterator[Judgement]:
        """One an example, in order, each made when it is asked for."""
        return map(self.judgement, range(len(self.examples)))

    def counts(self) -> dict[str, int]:
        """How the examples were read.

        num_truncated of the num_examples lost a part; num_windowed were read in several windows,
        num_windows together.
        """
        windowed = self.windows_of_each[self.windows_of_each > 1]
        return {
            "num_examples": len(self.examples),
            "num_truncated": sum(one.truncated for one in self.first_features),
            "num_windowed": len(windowed),
            "num_windows": int(windowed.sum()),
        }

    @cached_property
    def first_features(self) -> list[Features]:
        """The first of each example's features."""
        return first_features(self.features)

    @cached_property
    def windows_of_each(self) -> Indices:
        """(N,) how many features each example has."""
        return window_counts(self.features)


def softmax(logits: npt.NDArray[np.float32]) -> Floats:
    """Probabilities (B, C) of logits (B, C)."""
    shifted = np.exp(logits.astype(np.float64) - logits.max(1, keepdims=True))
    return np.asarray(shifted / shifted.sum(1, keepdims=True))
