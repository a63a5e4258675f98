"""regress: a single text or a pair to a score (STS-B, paper 4.1): squared error on one output."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tidybert.configuration import BertConfig
from tidybert.data.batching import Batch
from tidybert.data.examples import TextExample, finite_number
from tidybert.data.features import BatchTokenizer, Features, example_features
from tidybert.errors import DataError
from tidybert.metrics.regression import regression_metrics
from tidybert.modeling.heads import BertForSequenceClassification


class Regression:
    """Mean squared error; the output is in the units of the labels."""

    name = "regress"
    metric = "pearson"
    architecture = "BertForSequenceClassification"
    problem_type: str | None = "regression"
    label_names: tuple[str, ...] | None = None

    def build_model(self, config: BertConfig) -> BertForSequenceClassification:
        return BertForSequenceClassification(config, num_labels=1)

    def features(
        self, examples: Sequence[TextExample], tokenizer: BatchTokenizer, max_seq_length: int
    ) -> list[Features]:
        return example_features(examples, tokenizer, max_seq_length)

    def add_labels(self, features: Sequence[Features], examples: Sequence[TextExample]) -> None:
        for one, example in zip(features, examples, strict=True):
            score = None if example.label is None else finite_number(example.label)
            if score is None:
                raise DataError(
                    f"line {example.row}: {example.label!r} is no score; a finite number is needed"
                )
            one.label = score

    def start(self, model: nn.Module, features: Sequence[Features]) -> None:
        """The bias begins at the mean label: from 0 a small data set's steps hardly reach it."""
        total = sum(one.weight for one in features)
        mean = sum(one.label * one.weight for one in features) / total
        with torch.no_grad():
            model.get_parameter("classifier.bias").fill_(mean)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        values = self.outputs(model, batch).float()
        labels = torch.tensor([one.label for one in batch.features], device=values.device)
        weights = torch.tensor([one.weight for one in batch.features], device=values.device)
        return ((values - labels).square() * weights).sum()

    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        logits: Tensor = model(batch.rows)
        return logits[:, 0]

    def metrics(
        self, outputs: npt.NDArray[np.float32], features: Sequence[Features]
    ) -> dict[str, Any]:
        return regression_metrics(np.array([one.label for one in features]), outputs)

    def predictions(self, outputs: npt.NDArray[np.float32]) -> list[dict[str, Any]]:
        return [{"value": float(value)} for value in outputs]
