"""regress: a single text or a pair to a score (STS-B, paper 4.1): squared error on one output."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.configuration import BertConfig
from tidybert.data.batching import Batch
from tidybert.data.features import Features, first_features
from tidybert.data.long_texts import LongTexts
from tidybert.errors import LINE, DataError
from tidybert.files.labels import finite_number
from tidybert.files.text_examples import TextExample
from tidybert.metrics.regression_scores import regression_metrics
from tidybert.modeling.heads import BertForSequenceClassification
from tidybert.tasks.task import Judgement, Outputs, Scorer, Unit
from tidybert.tasks.task_options import TaskOptions
from tidybert.tasks.text_task import TextTask, example_outputs, shown_text


class Regression(TextTask):
    """Mean squared error; the output is in the units of the labels."""

    name = "regress"
    kind = "regress"
    metric = "pearson"
    architecture = "BertForSequenceClassification"
    problem_type: str | None = "regression"
    label_names: tuple[str, ...] | None = None
    unit: Unit = "feature"
    meanings: ClassVar[Mapping[str, str]] = {
        "pearson": "linear correlation; 0 is chance, 1 is perfect",
        "spearman": "correlation of the ranks",
        "mse": "mean squared error, in the scores' units squared",
    }
    takes: ClassVar[frozenset[str]] = frozenset({"long", "doc_stride"})

    @classmethod
    def from_examples(cls, examples: Sequence[TextExample], options: TaskOptions) -> Self:
        return cls(LongTexts.from_options(options.long, options.doc_stride))

    @classmethod
    def from_metadata(cls, metadata: ModelMetadata) -> Self:
        return cls(LongTexts.from_settings(metadata.settings))

    def settings(self) -> dict[str, Any]:
        return self.long_texts.settings()

    def build_model(self, config: BertConfig) -> BertForSequenceClassification:
        return BertForSequenceClassification(config, num_labels=1)

    def add_labels(self, features: Sequence[Features], examples: Sequence[TextExample]) -> None:
        for one in features:
            example = examples[one.example]
            score = None if example.label is None else finite_number(example.label)
            if score is None:
                raise DataError(
                    f"{LINE} {example.row}: {example.label!r} is no score; a finite number is "
                    "needed"
                )
            one.label = score

    def start(self, model: nn.Module, features: Sequence[Features]) -> None:
        """The bias begins at the mean label: from 0 a small data set's steps hardly reach it."""
        total = sum(one.weight for one in features)
        mean = sum(one.label * one.weight for one in features) / total
        with torch.no_grad():
            model.get_parameter("classifier.bias").fill_(mean)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        values = self.outputs(model, batch)[:, 0].float()
        labels = torch.tensor([one.label for one in batch.features], device=values.device)
        weights = torch.tensor([one.weight for one in batch.features], device=values.device)
        return ((values - labels).square() * weights).sum()

    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        logits: Tensor = model(batch.rows, lower_states=batch.lower_states)
        return logits

    def calibrated(
        self, outputs: Outputs, features: Sequence[Features], examples: Sequence[TextExample]
    ) -> Self:
        """The same: a score has no probability."""
        return self

    def metrics(
        self, outputs: Outputs, features: Sequence[Features], examples: Sequence[TextExample]
    ) -> dict[str, Any]:
        labels = np.array([one.label for one in first_features(features)])
        return regression_metrics(labels, example_outputs(outputs, features)[:, 0])

    def predictions(
        self, outputs: Outputs, features: Sequence[Features], examples: Sequence[TextExample]
    ) -> list[dict[str, Any]]:
        values = example_outputs(outputs, features)[:, 0]
        return self.with_windows([{"value": float(value)} for value in values], features)

    def judgements(
        self, outputs: Outputs, features: Sequence[Features], examples: Sequence[TextExample]
    ) -> list[Judgement]:
        values = example_outputs(outputs, features)[:, 0]
        return [
            Judgement(
                text=shown_text(example),
                expected=repr(one.label),
                predicted=repr(float(value)),
                correct=None,
                confidence=None,
                expected_probability=None,
                num_tokens=one.num_tokens,
                row=example.row,
            )
            for example, one, value in zip(examples, first_features(features), values, strict=True)
        ]

    def scorer(
        self, outputs: Outputs, features: Sequence[Features], examples: Sequence[TextExample]
    ) -> Scorer:
        labels = np.array([one.label for one in first_features(features)])
        values = example_outputs(outputs, features)[:, 0]

        def score(chosen: npt.NDArray[np.int64]) -> dict[str, float]:
            return regression_metrics(labels[chosen], values[chosen])

        return score
