"""regress: a single text or a pair to a score (STS-B, paper 4.1): squared error on one output."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from tidybert.checkpoints.activations import ACTIVATIONS, IDENTITY, activation_module
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.data.batching import Batch
from tidybert.data.checks import DataReport, TrainingData
from tidybert.data.features import Features
from tidybert.data.long_texts import LongTexts
from tidybert.errors import LINE, ConfigError, DataError, UsageError, param
from tidybert.files.rows import finite_number
from tidybert.files.text_examples import TextExample
from tidybert.files.text_files import read_examples
from tidybert.metrics.metric import meanings_of
from tidybert.metrics.text_scores import NumberScores, regression_metrics
from tidybert.tasks.answer import Scored
from tidybert.tasks.answers import Indices, Judgement
from tidybert.tasks.targets import Explained, Target
from tidybert.tasks.task import labels_of
from tidybert.tasks.task_options import TextOptions
from tidybert.tasks.text_task import TextAnswers, TextTask, label_of

if TYPE_CHECKING:
    from torch import Tensor, nn

    from tidybert.checkpoints.model_directory import HeadDescription


class ScoreAnswers(TextAnswers["Regression"]):
    """A number."""

    @cached_property
    def values(self) -> npt.NDArray[np.float32]:
        """(N,)."""
        return ACTIVATIONS[self.task.activation](self.logits[:, 0])

    @cached_property
    def scores(self) -> npt.NDArray[np.float64]:
        """(N,) the right ones."""
        return np.array(self.labels)

    def metrics(self, chosen: Indices | None = None) -> dict[str, Any]:
        which = slice(None) if chosen is None else chosen
        return regression_metrics(self.scores[which], self.values[which])

    def prediction(self, number: int) -> Scored:
        return Scored(float(self.values[number]))

    def judgement(self, number: int) -> Judgement:
        return Judgement(
            expected=repr(self.labels[number]),
            predicted=repr(float(self.values[number])),
            correct=None,
            confidence=None,
            expected_probability=None,
            **self.place(number),
        )


class Regression(TextTask):
    """Mean squared error; the output is in the units of the labels.

    Args:
        activation: what the scores of a cross-encoder of sentence-transformers pass through, a
            name of ACTIVATIONS; training here has none.
    """

    name = "regress"
    answer, answers_class = Scored, ScoreAnswers
    stratified = False
    read = read_examples.with_details(scores=True)
    metric = "pearson"
    problem_type = "regression"
    meanings = meanings_of(NumberScores)

    def __init__(self, long_texts: LongTexts | None = None, activation: str = IDENTITY) -> None:
        super().__init__(long_texts)
        if activation not in ACTIVATIONS:
            raise ConfigError(
                f"the activation of its scores is {activation!r:.80}; tidybert computes "
                f"{', '.join(ACTIVATIONS)}"
            )
        self.activation = activation

    @classmethod
    def from_examples(
        cls, examples: Sequence[TextExample], options: TextOptions = TextOptions()
    ) -> Self:
        return cls(LongTexts(options.long or "truncate", options.doc_stride))

    @classmethod
    def from_metadata(cls, metadata: ModelMetadata) -> Self:
        settings = metadata.settings
        return cls(LongTexts.from_settings(settings), settings.get("activation", IDENTITY))

    def settings(self) -> dict[str, Any]:
        given = {} if self.activation == IDENTITY else {"activation": self.activation}
        return {**given, **super().settings()}

    @classmethod
    def reads_head(cls, head: HeadDescription) -> bool:
        is_number = head.problem_type == "regression" or len(head.label_names or "01") == 1
        is_sets = head.problem_type == "multi_label_classification"
        return super().reads_head(head) and is_number and not is_sets

    @classmethod
    def names_in(cls, head: HeadDescription) -> None:
        return None

    def examine_labels(self, data: TrainingData[TextExample], report: DataReport) -> None:
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

    @classmethod
    def strata(cls, examples: Sequence[TextExample], num_folds: int) -> Sequence[Collection[str]]:
        """Blocks of neighbours in the order of their scores, so that the folds' means are alike.

        A model that knows nothing answers with the mean of the other folds: where means differ,
        its correlation with the scores is below 0.
        """
        scores = np.array([cls.answer_key(one) for one in examples], dtype=np.float64)
        ranks = np.argsort(np.argsort(scores, kind="stable"))
        return [(str(rank // num_folds),) for rank in ranks]

    @staticmethod
    def answer_key(example: TextExample) -> float | None:
        return finite_number(label_of(example))

    def add_labels(self, features: Sequence[Features], examples: Sequence[TextExample]) -> None:
        for one in features:
            example = examples[one.example]
            score = None if example.label is None else finite_number(example.label)
            if score is None:
                raise DataError(
                    f"{LINE} {example.row}: {example.label!r} is not a score; a finite number is "
                    "needed"
                )
            one.label = score

    def start(self, model: nn.Module, features: Sequence[Features]) -> None:
        """The bias begins at the mean label: a zero bias cannot reach the mean in a few steps."""
        total = sum(one.weight for one in features)
        mean = sum(one.label * one.weight for one in features) / total
        import torch

        with torch.no_grad():
            model.get_parameter("classifier.bias").fill_(mean)

    def losses(self, outputs: Tensor, batch: Batch) -> Tensor:
        return (outputs[:, 0] - labels_of(batch, outputs)).square()

    def trained_outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        apply = activation_module(self.activation)
        found: Tensor = apply(super().trained_outputs(model, batch))
        return found

    def imitation_losses(
        self, outputs: Tensor, taught: Tensor, batch: Batch, temperature: float
    ) -> Tensor:
        return (outputs - taught)[:, 0].square()

    def target(self, asked: Explained) -> Target:
        if asked.label is not None:
            raise UsageError(f"{param('target')}: a model that gives scores has no labels")
        return Target("score", (), lambda each: each[:, 0, 0])
