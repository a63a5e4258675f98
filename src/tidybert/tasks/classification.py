"""classify: a single text or a pair to one of several classes (paper 4.1; run_classifier.py)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
import numpy.typing as npt

from tidybert.checkpoints.activations import IDENTITY
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.data.batching import Batch
from tidybert.data.checks import DataReport, TrainingData
from tidybert.data.features import Features
from tidybert.data.long_texts import LongTexts
from tidybert.errors import LINE, ConfigError, DataError, UsageError, param
from tidybert.files.text_examples import TextExample, label_names
from tidybert.files.text_files import read_soft_examples
from tidybert.metrics.calibration import ANSWERS_NONE, fewest_for, fit_temperature, score_for
from tidybert.metrics.metric import meanings_of
from tidybert.metrics.text_scores import ClassScorer, ClassScores, classification_metrics
from tidybert.tasks.answer import Classified
from tidybert.tasks.answers import Floats, Indices, Judgement, softmax
from tidybert.tasks.targets import Explained, Target, class_target
from tidybert.tasks.task import labels_of, refuse_unknown, softmax_divergence
from tidybert.tasks.task_options import ClassOptions, ScoreOption
from tidybert.tasks.text_task import TextAnswers, TextTask

if TYPE_CHECKING:
    from torch import Tensor

    from tidybert.checkpoints.model_directory import HeadDescription

_LOGGER: Final = logging.getLogger(__name__)


class ClassAnswers(TextAnswers["Classification"]):
    """A probability for each class."""

    @cached_property
    def class_probabilities(self) -> Floats:
        return softmax(self.logits / np.float32(self.task.temperature))

    @cached_property
    def best(self) -> Indices:
        """(N,) the likeliest class."""
        best: Indices = self.class_probabilities.argmax(1)
        return best

    @cached_property
    def label_ids(self) -> Indices:
        """(N,) the right class."""
        return np.array(list(map(likeliest, self.labels)), dtype=np.int64)

    @cached_property
    def _scorer(self) -> ClassScorer:
        names = self.task.names
        return ClassScorer(self.label_ids, self.best, len(names), self.class_probabilities)

    def metrics(self, chosen: Indices | None = None) -> dict[str, Any]:
        if chosen is not None:
            found: dict[str, Any] = self._scorer(chosen)
        else:
            names = self.task.names
            probabilities = self.class_probabilities
            found = classification_metrics(self.label_ids, self.best, names, probabilities)
        if self.task.min_score is not None:
            which = slice(None) if chosen is None else chosen
            given = self.confidence[which] >= self.task.min_score
            if chosen is None:
                found["min_score"] = self.task.min_score
            found["coverage"] = float(given.mean())
            right = self.correct[which][given]
            found["answered_accuracy"] = float(right.mean()) if len(right) else 0.0
        return found

    @cached_property
    def confidence(self) -> Floats:
        """(N,) the probability of the likeliest class."""
        return np.asarray(self.class_probabilities.max(1))

    @cached_property
    def correct(self) -> Floats:
        """(N,) 1 where the likeliest class is right, else 0."""
        return np.asarray(self.best == self.label_ids, dtype=np.float64)

    def prediction(self, number: int) -> Classified:
        scores = self.class_probabilities[number].tolist()
        best, names = int(self.best[number]), self.task.names
        found = Classified(names[best], scores[best], dict(zip(names, scores, strict=True)))
        return found.from_score(self.task.min_score)

    def judgement(self, number: int) -> Judgement:
        scores = self.class_probabilities[number]
        best, label = int(self.best[number]), int(self.label_ids[number])
        return Judgement(
            expected=self.task.names[label],
            predicted=self.task.names[best],
            correct=float(best == label),
            confidence=float(scores[best]),
            expected_probability=float(scores[label]),
            **self.place(number),
        )


class Classification(TextTask):
    """Cross-entropy over classes.

    Args:
        label_names: the classes in the order of their ids.
        class_weights: by name, each example's weight in the loss; None weighs all alike.
        temperature: answers divide logits by this before the softmax.
        long_texts: how to read texts that are too long; None cuts off their end.
        min_score: answers give no label below this probability; None always gives one.
        options: what else training was given, such as how to choose ``min_score``.

    Raises UsageError for class weights of other names.
    """

    name = "classify"
    probe_share = 0.5
    answer, answers_class = Classified, ClassAnswers
    metric = "accuracy"
    problem_type = "single_label_classification"
    options_class = ClassOptions
    meanings = meanings_of(ClassScores)

    def __init__(
        self,
        label_names: Sequence[str],
        class_weights: Mapping[str, float] | None = None,
        temperature: float = 1.0,
        long_texts: LongTexts | None = None,
        min_score: float | None = None,
        options: ClassOptions = ClassOptions(),
    ) -> None:
        super().__init__(long_texts)
        self.min_score, self._options = min_score, options
        self.label_names = tuple(label_names)
        if class_weights is not None and set(class_weights) != set(self.names):
            different = sorted(set(class_weights) ^ set(self.names))
            raise UsageError(
                f"{param('class_weight')} and the labels differ in {', '.join(different)}: give "
                f"each of {', '.join(self.names)} a weight"
            )
        self._class_weights = class_weights
        self.temperature = temperature

    @classmethod
    def from_examples(
        cls, examples: Sequence[TextExample], options: ClassOptions = ClassOptions()
    ) -> Self:
        weights = None
        if options.class_weight:
            labels = [one.label for one in examples if one.label is not None]
            weights = balanced_class_weights(labels)
        long_texts = LongTexts(options.long or "truncate", options.doc_stride)
        return cls(label_names(examples), weights, long_texts=long_texts, options=options)

    @classmethod
    def from_metadata(cls, metadata: ModelMetadata) -> Self:
        activation = metadata.settings.get("activation", IDENTITY)
        if activation != IDENTITY:
            raise ConfigError(
                f"the activation of its scores is {activation!r:.80}; tidybert computes the "
                f"softmax over classes, which goes with {IDENTITY}"
            )
        return cls(
            cls.needed_names(metadata),
            temperature=metadata.settings.get("temperature", 1.0),
            long_texts=LongTexts.from_settings(metadata.settings),
            min_score=metadata.settings.get("min_score"),
        )

    @classmethod
    def classes_of(cls, example: TextExample) -> Collection[str]:
        return () if example.label is None else (example.label,)

    def settings(self) -> dict[str, Any]:
        # So a RUN that always gives a label has the file of older versions.
        score = {} if self.min_score is None else {"min_score": self.min_score}
        return {"temperature": self.temperature, **score, **super().settings()}

    def examine(self, data: TrainingData[TextExample], report: DataReport) -> None:
        super().examine(data, report)
        coverage, accuracy = self._options.min_coverage, self._options.min_accuracy
        if (needed := fewest_for(coverage, accuracy)) > len(data.held_out):
            name, wanted = ("min_coverage", coverage) if coverage else ("min_accuracy", accuracy)
            report.errors.append(
                f"{param(name, wanted)} needs {needed:,} dev examples to know, and there are "
                f"{len(data.held_out):,}: give more with {param('dev')}, or leave it out"
            )

    @classmethod
    def reads_head(cls, head: HeadDescription) -> bool:
        is_other = head.problem_type in ("regression", "multi_label_classification")
        is_number = head.label_names is not None and len(head.label_names) == 1
        return super().reads_head(head) and not is_other and not is_number

    def add_labels(self, features: Sequence[Features], examples: Sequence[TextExample]) -> None:
        labels = ((one.label, one.row) for one in examples if one.label is not None)
        refuse_unknown("label", labels, self.label_ids)
        for one in features:
            example = examples[one.example]
            if example.label is None:
                raise DataError(f"{LINE} {example.row}: the example has no label")
            one.label = self.label_ids[example.label]
            if self._class_weights is not None:
                one.weight *= self._class_weights[example.label]

    def losses(self, outputs: Tensor, batch: Batch) -> Tensor:
        from torch.nn import functional

        return functional.cross_entropy(outputs, labels_of(batch, outputs), reduction="none")

    def imitation_losses(
        self, outputs: Tensor, taught: Tensor, batch: Batch, temperature: float
    ) -> Tensor:
        return softmax_divergence(outputs, taught, temperature)

    def target(self, asked: Explained) -> Target:
        chosen = self.chosen_label(asked.label, asked.logits[0])
        return class_target(self.names[chosen], chosen, self.temperature)

    def with_min_score(self, min_score: float | None) -> Self:
        ScoreOption(min_score=min_score)
        found = copy(self)
        found.min_score = self.min_score if min_score is None else min_score
        return found

    def calibrated(self, answers: ClassAnswers) -> Self:
        """One temperature, and then the score from which a label is given, if one is asked for."""
        found, options = copy(self), self._options
        found.temperature = fit_temperature(answers.logits, answers.label_ids)
        if options.min_coverage is not None or options.min_accuracy is not None:
            warmed = found.answers(answers.outputs, answers.features, answers.examples)
            assert isinstance(warmed, ClassAnswers)
            found.min_score = score_for(
                warmed.confidence, warmed.correct, options.min_coverage, options.min_accuracy
            )
            if options.min_accuracy is not None and found.min_score == ANSWERS_NONE:
                _LOGGER.warning(
                    f"no score reaches an accuracy of {options.min_accuracy:g} on dev, so the "
                    "model gives no label: train it with more examples, or ask for less"
                )
        return found


class SoftClassification(Classification):
    """Cross-entropy with probabilities, of a model or of several people; measured by the likeliest.

    The finished model is one of classify, which reads files as its training did.
    """

    read = read_soft_examples

    @classmethod
    def reads_head(cls, head: HeadDescription) -> bool:
        return False

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "soft": True}

    def add_labels(self, features: Sequence[Features], examples: Sequence[TextExample]) -> None:
        names = ((name, one.row) for one in examples for name in one.soft or ())
        refuse_unknown("label", names, self.label_ids)
        super().add_labels(features, examples)
        for one in features:
            soft = examples[one.example].soft or {self.names[one.label]: 1.0}
            one.label = tuple(soft.get(name, 0.0) for name in self.names)


def likeliest(label: int | tuple[float, ...]) -> int:
    """The class of a label, which may be probabilities."""
    return int(np.argmax(label)) if isinstance(label, tuple) else int(label)


def balanced_class_weights(labels: Sequence[str]) -> dict[str, float]:
    """Weights inverse to each class's share, 1 on average, as scikit-learn's "balanced"."""
    names, counts = np.unique(np.array(labels, dtype=object), return_counts=True)
    weights: npt.NDArray[np.float64] = len(labels) / (len(names) * counts)
    return dict(zip(map(str, names), map(float, weights), strict=True))
