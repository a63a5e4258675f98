"""classify: a single text or a pair to one of several classes (paper 4.1; run_classifier.py)."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.configuration import BertConfig
from tidybert.data.batching import Batch
from tidybert.data.features import Features, first_features
from tidybert.data.long_texts import LongTexts
from tidybert.errors import LINE, ConfigError, DataError, UsageError, param
from tidybert.files.labels import label_names
from tidybert.files.text_examples import TextExample
from tidybert.metrics.calibration import fit_temperature
from tidybert.metrics.classification_scores import classification_metrics
from tidybert.modeling.heads import BertForSequenceClassification
from tidybert.tasks.task import Judgement, Outputs, Scorer, Unit
from tidybert.tasks.task_options import TaskOptions
from tidybert.tasks.text_task import TextTask, example_outputs, shown_text
from tidybert.tasks.unknown_labels import refuse_unknown


class Classification(TextTask):
    """Cross-entropy over classes.

    Args:
        label_names: the classes in the order of their ids.
        class_weights: by name, each example's weight in the loss; None weighs all alike.
        temperature: answers divide logits by this before the softmax.
        long_texts: what becomes of texts that are too long; None cuts off their end.

    Raises UsageError for class weights of other names.
    """

    name = "classify"
    kind = "classify"
    metric = "accuracy"
    architecture = "BertForSequenceClassification"
    problem_type: str | None = "single_label_classification"
    unit: Unit = "feature"
    meanings: ClassVar[Mapping[str, str]] = {
        "accuracy": "share of the examples that are right",
        "macro_f1": "mean F1 of the classes, however rare",
        "matthews": "correlation; 0 is chance, 1 is perfect",
        "f1": "F1 of the class {positive}",
        "log_loss": "mean of -ln(probability of the right class)",
    }
    takes: ClassVar[frozenset[str]] = frozenset(
        {"class_weight", "multi_label", "long", "doc_stride"}
    )

    def __init__(
        self,
        label_names: Sequence[str],
        class_weights: Mapping[str, float] | None = None,
        temperature: float = 1.0,
        long_texts: LongTexts | None = None,
    ) -> None:
        super().__init__(long_texts)
        self.label_names: tuple[str, ...] | None = tuple(label_names)
        self._names = tuple(label_names)
        self._ids = {label: number for number, label in enumerate(self._names)}
        if class_weights is not None and set(class_weights) != set(self._names):
            different = sorted(set(class_weights) ^ set(self._names))
            raise UsageError(
                f"{param('class_weight')} and the labels differ in {', '.join(different)}: give "
                f"each of {', '.join(self._names)} a weight"
            )
        self._class_weights = class_weights
        self.temperature = temperature

    @classmethod
    def from_examples(cls, examples: Sequence[TextExample], options: TaskOptions) -> Self:
        weights = None
        if options.class_weight:
            labels = [one.label for one in examples if one.label is not None]
            weights = balanced_class_weights(labels)
        long_texts = LongTexts.from_options(options.long, options.doc_stride)
        return cls(label_names(examples), weights, long_texts=long_texts)

    @classmethod
    def from_metadata(cls, metadata: ModelMetadata) -> Self:
        if not metadata.label_names:
            raise ConfigError(f"tidybert.json: {cls.name} needs label_names, and there are none")
        return cls(
            metadata.label_names,
            temperature=metadata.number("temperature", 1.0),
            long_texts=LongTexts.from_settings(metadata.settings),
        )

    def settings(self) -> dict[str, Any]:
        return {"temperature": self.temperature, **self.long_texts.settings()}

    def build_model(self, config: BertConfig) -> BertForSequenceClassification:
        return BertForSequenceClassification(config, num_labels=len(self._names))

    def add_labels(self, features: Sequence[Features], examples: Sequence[TextExample]) -> None:
        labels = ((one.label, one.row) for one in examples if one.label is not None)
        refuse_unknown("label", labels, self._ids)
        for one in features:
            example = examples[one.example]
            if example.label is None:
                raise DataError(f"{LINE} {example.row}: the example has no label")
            one.label = self._ids[example.label]
            if self._class_weights is not None:
                one.weight *= self._class_weights[example.label]

    def start(self, model: nn.Module, features: Sequence[Features]) -> None:
        """Nothing: the head begins as it was drawn, as in the original code."""

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        logits = self.outputs(model, batch)
        labels = torch.tensor([one.label for one in batch.features], device=logits.device)
        weights = torch.tensor([one.weight for one in batch.features], device=logits.device)
        losses = functional.cross_entropy(logits.float(), labels, reduction="none")
        return (losses * weights).sum()

    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        logits: Tensor = model(batch.rows, lower_states=batch.lower_states)
        return logits

    def calibrated(
        self, outputs: Outputs, features: Sequence[Features], examples: Sequence[TextExample]
    ) -> Self:
        logits = example_outputs(outputs, features)
        labels = example_labels(features)
        temperature = fit_temperature(logits, labels)
        return type(self)(self._names, self._class_weights, temperature, self.long_texts)

    def metrics(
        self, outputs: Outputs, features: Sequence[Features], examples: Sequence[TextExample]
    ) -> dict[str, Any]:
        probabilities = self._probabilities(outputs, features)
        return classification_metrics(
            example_labels(features), probabilities.argmax(1), self._names, probabilities
        )

    def predictions(
        self, outputs: Outputs, features: Sequence[Features], examples: Sequence[TextExample]
    ) -> list[dict[str, Any]]:
        answers = []
        for scores in self._probabilities(outputs, features):
            best = int(scores.argmax())
            answers.append(
                {
                    "label": self._names[best],
                    "score": float(scores[best]),
                    "scores": dict(zip(self._names, map(float, scores), strict=True)),
                }
            )
        return self.with_windows(answers, features)

    def judgements(
        self, outputs: Outputs, features: Sequence[Features], examples: Sequence[TextExample]
    ) -> list[Judgement]:
        probabilities = self._probabilities(outputs, features)
        return [
            Judgement(
                text=shown_text(example),
                expected=self._names[label],
                predicted=self._names[best],
                correct=float(best == label),
                confidence=float(scores[best]),
                expected_probability=float(scores[label]),
                num_tokens=one.num_tokens,
                row=example.row,
            )
            for example, one, label, best, scores in zip(
                examples,
                first_features(features),
                example_labels(features).tolist(),
                probabilities.argmax(1).tolist(),
                probabilities,
                strict=True,
            )
        ]

    def scorer(
        self, outputs: Outputs, features: Sequence[Features], examples: Sequence[TextExample]
    ) -> Scorer:
        probabilities, labels = self._probabilities(outputs, features), example_labels(features)
        predicted = probabilities.argmax(1)

        def score(chosen: npt.NDArray[np.int64]) -> dict[str, float]:
            found = classification_metrics(
                labels[chosen], predicted[chosen], self._names, probabilities[chosen]
            )
            return {name: value for name, value in found.items() if isinstance(value, float)}

        return score

    def _probabilities(
        self, outputs: Outputs, features: Sequence[Features]
    ) -> npt.NDArray[np.float64]:
        """(number of examples, C)."""
        return softmax(example_outputs(outputs, features) / np.float32(self.temperature))


def example_labels(features: Sequence[Features]) -> npt.NDArray[np.int64]:
    """The class of each example, (number of examples,)."""
    return np.array([one.label for one in first_features(features)], dtype=np.int64)


def softmax(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Probabilities (B, C) of logits (B, C)."""
    shifted = np.exp(logits.astype(np.float64) - logits.max(1, keepdims=True))
    return np.asarray(shifted / shifted.sum(1, keepdims=True))


def balanced_class_weights(labels: Sequence[str]) -> dict[str, float]:
    """Weights inverse to each class's share, 1 on average, as scikit-learn's "balanced"."""
    names, counts = np.unique(np.array(labels, dtype=object), return_counts=True)
    weights = len(labels) / (len(names) * counts)
    return dict(zip(map(str, names), map(float, weights), strict=True))
