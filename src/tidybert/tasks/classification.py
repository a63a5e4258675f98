"""classify: a single text or a pair to one of several classes (paper 4.1; run_classifier.py)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from tidybert.configuration import BertConfig
from tidybert.data.batching import Batch
from tidybert.data.examples import TextExample
from tidybert.data.features import BatchTokenizer, Features, example_features
from tidybert.errors import DataError, UsageError
from tidybert.metrics.classification import classification_metrics
from tidybert.modeling.heads import BertForSequenceClassification


class Classification:
    """Cross-entropy over classes.

    Args:
        label_names: the classes in the order of their ids.
        class_weights: by name, each example's weight in the loss; None weighs all alike.
        temperature: predictions divide logits by this before the softmax.

    Raises UsageError for class weights of other names.
    """

    name = "classify"
    metric = "accuracy"
    architecture = "BertForSequenceClassification"
    problem_type: str | None = "single_label_classification"

    def __init__(
        self,
        label_names: Sequence[str],
        class_weights: Mapping[str, float] | None = None,
        temperature: float = 1.0,
    ) -> None:
        self.label_names: tuple[str, ...] | None = tuple(label_names)
        self._names = tuple(label_names)
        self._ids = {label: number for number, label in enumerate(self._names)}
        if class_weights is not None and set(class_weights) != set(self._names):
            different = sorted(set(class_weights) ^ set(self._names))
            raise UsageError(
                f"--class-weight and the labels differ in {', '.join(different)}: give each of "
                f"{', '.join(self._names)} a weight"
            )
        self._class_weights = class_weights
        self._temperature = temperature

    def build_model(self, config: BertConfig) -> BertForSequenceClassification:
        return BertForSequenceClassification(config, num_labels=len(self._names))

    def features(
        self, examples: Sequence[TextExample], tokenizer: BatchTokenizer, max_seq_length: int
    ) -> list[Features]:
        return example_features(examples, tokenizer, max_seq_length)

    def add_labels(self, features: Sequence[Features], examples: Sequence[TextExample]) -> None:
        for one, example in zip(features, examples, strict=True):
            if example.label is None or example.label not in self._ids:
                shown = ", ".join(self._names[:20]) + (", …" if len(self._names) > 20 else "")
                raise DataError(
                    f"line {example.row}: the label {example.label!r} is none of the "
                    f"{len(self._names)} that the model knows: {shown}"
                )
            one.label = self._ids[example.label]
            if self._class_weights is not None:
                one.weight = self._class_weights[example.label]

    def start(self, model: nn.Module, features: Sequence[Features]) -> None:
        """Nothing: the head begins as it was drawn, as in the original code."""

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        logits = self.outputs(model, batch)
        labels = torch.tensor([one.label for one in batch.features], device=logits.device)
        weights = torch.tensor([one.weight for one in batch.features], device=logits.device)
        losses = functional.cross_entropy(logits.float(), labels, reduction="none")
        return (losses * weights).sum()

    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        logits: Tensor = model(batch.rows)
        return logits

    def metrics(
        self, outputs: npt.NDArray[np.float32], features: Sequence[Features]
    ) -> dict[str, Any]:
        labels = np.array([one.label for one in features], dtype=np.int64)
        return classification_metrics(labels, outputs.argmax(1), self._names)

    def predictions(self, outputs: npt.NDArray[np.float32]) -> list[dict[str, Any]]:
        answers = []
        for scores in softmax(outputs / np.float32(self._temperature)):
            best = int(scores.argmax())
            answers.append(
                {
                    "label": self._names[best],
                    "score": float(scores[best]),
                    "scores": dict(zip(self._names, map(float, scores), strict=True)),
                }
            )
        return answers


def softmax(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Probabilities (B, C) of logits (B, C)."""
    shifted = np.exp(logits.astype(np.float64) - logits.max(1, keepdims=True))
    return np.asarray(shifted / shifted.sum(1, keepdims=True))


def balanced_class_weights(labels: Sequence[str]) -> dict[str, float]:
    """Weights inverse to each class's share, 1 on average, as scikit-learn's "balanced"."""
    names, counts = np.unique(np.array(labels, dtype=object), return_counts=True)
    weights = len(labels) / (len(names) * counts)
    return dict(zip(map(str, names), map(float, weights), strict=True))
