"""classify --multi-label: any number of labels a text, each decided by itself.

The head is the classifier's: each output is a label's logit.  The loss of an example is the mean
binary cross-entropy over its labels, as in transformers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.data.batching import Batch
from tidybert.data.checks import SHOWN, DataReport, TrainingData, check_joined, check_labels, listed
from tidybert.data.features import Features
from tidybert.data.long_texts import LongTexts
from tidybert.data.splits import Indices, stratified_split
from tidybert.errors import LINE, ConfigError, DataError, param
from tidybert.files.rows import count_of
from tidybert.files.text_examples import TextExample, label_names, label_order
from tidybert.files.text_files import read_examples
from tidybert.metrics.calibration import fit_temperature
from tidybert.metrics.metric import meanings_of
from tidybert.metrics.text_scores import (
    DEFAULT_THRESHOLD,
    LabelSetScores,
    MultiLabelScorer,
    f1_thresholds,
    multi_label_metrics,
)
from tidybert.tasks.answer import LabelSet
from tidybert.tasks.answers import Floats, Judgement
from tidybert.tasks.targets import Explained, Target
from tidybert.tasks.task import refuse_unknown, softmax_divergence, tensor_on
from tidybert.tasks.task_options import MultiLabelOptions
from tidybert.tasks.text_task import LONE_ADVICE, TextAnswers, TextTask

if TYPE_CHECKING:
    from torch import Tensor

    from tidybert.checkpoints.model_directory import HeadDescription

Matrix = npt.NDArray[np.bool_]


class LabelSetAnswers(TextAnswers["MultiLabelClassification"]):
    """A probability for each label, and whether it is given."""

    @cached_property
    def probabilities(self) -> Floats:
        """(N, C)."""
        return self.task.probabilities(self.logits)

    @cached_property
    def decisions(self) -> Matrix:
        """(N, C)."""
        return self.task.decisions(self.probabilities)

    @cached_property
    def truth(self) -> Matrix:
        """(N, C)."""
        return self.task.truth(self.labels)

    @cached_property
    def _scorer(self) -> MultiLabelScorer:
        return MultiLabelScorer(self.truth, self.decisions, self.probabilities)

    def metrics(self, chosen: Indices | None = None) -> dict[str, Any]:
        """Those of ``multi_label_metrics``; per_label has each threshold, None where not tuned."""
        if chosen is not None:
            return self._scorer(chosen)
        found = multi_label_metrics(self.truth, self.decisions, self.task.names, self.probabilities)
        for name, each in found["per_label"].items():
            each["threshold"] = self.task.thresholds.get(name)
        return found

    def prediction(self, number: int) -> LabelSet:
        scores = dict(zip(self.task.names, self.probabilities[number].tolist(), strict=True))
        return LabelSet(self._named(self.decisions[number]), scores)

    def judgement(self, number: int) -> Judgement:
        """An answer is right where all its labels are; its probability is the product of theirs."""
        truth, decided = self.truth[number], self.decisions[number]
        probabilities = self.probabilities[number]
        return Judgement(
            expected=", ".join(self._named(truth)) or "(none)",
            predicted=", ".join(self._named(decided)) or "(none)",
            correct=float((truth == decided).all()),
            confidence=float(np.where(decided, probabilities, 1 - probabilities).prod()),
            expected_probability=float(np.where(truth, probabilities, 1 - probabilities).prod()),
            **self.place(number),
        )

    def _named(self, decided: Matrix) -> list[str]:
        return [self.task.names[at] for at in np.flatnonzero(decided)]


class MultiLabelClassification(TextTask):
    """Binary cross-entropy on each of the labels.

    Args:
        label_names: in the order of their ids.
        thresholds: by name, the probability from which a label is given; 0.5 for the others, such
            as labels with too few examples to tune it.
        temperature: answers divide logits by this before the sigmoid.
        long_texts: how to read texts that are too long; None cuts off their end.
        label_weights: by name, the weights in the loss of a text without the label and of one with
            it; None weighs all alike.
    """

    name = "multi-label"
    answer, answers_class = LabelSet, LabelSetAnswers
    read = read_examples.with_details(multi_label=True)
    # It needs no threshold, and thresholds are tuned only when training has ended.
    metric = "macro_average_precision"
    problem_type = "multi_label_classification"
    options_class = MultiLabelOptions
    meanings = meanings_of(LabelSetScores)

    def __init__(
        self,
        label_names: Sequence[str],
        thresholds: Mapping[str, float] | None = None,
        temperature: float = 1.0,
        long_texts: LongTexts | None = None,
        label_weights: Mapping[str, tuple[float, float]] | None = None,
    ) -> None:
        super().__init__(long_texts)
        self.label_names = tuple(label_names)
        self._label_weights = label_weights
        self.thresholds = dict(thresholds or {})
        self.temperature = temperature

    @classmethod
    def split(
        cls, examples: Sequence[TextExample], fraction: float, seed: int
    ) -> tuple[Indices, Indices]:
        """A text counts for its rarest label; every label of dev is in train too."""
        counts: dict[str, int] = {}
        for example in examples:
            for label in example.labels or ():
                counts[label] = counts.get(label, 0) + 1
        rarest = [min(e.labels, key=counts.__getitem__) if e.labels else "" for e in examples]
        texts = [cls.identity(one) for one in examples]
        train, dev = stratified_split(rarest, fraction, seed, texts=texts)
        known = {label for index in train for label in examples[index].labels or ()}
        needed: set[tuple[str, str | None]] = set()
        for index in dev:
            if not known.issuperset(labels := examples[index].labels or ()):
                known.update(labels)
                needed.add(texts[index])
        if all(texts[index] in needed for index in dev):
            raise DataError(
                f"{len(examples)} texts cannot be split: every text that could be held out has "
                f"a label of its own; add examples, or name a dev file with {param('dev')}"
            )
        is_dev = np.zeros(len(examples), dtype=np.bool_)
        is_dev[[index for index in dev.tolist() if texts[index] not in needed]] = True
        return np.flatnonzero(~is_dev), np.flatnonzero(is_dev)

    @classmethod
    def classes_of(cls, example: TextExample) -> Collection[str]:
        return example.labels or ()

    @classmethod
    def from_examples(
        cls, examples: Sequence[TextExample], options: MultiLabelOptions = MultiLabelOptions()
    ) -> Self:
        long_texts = LongTexts(options.long or "truncate", options.doc_stride)
        return cls(label_names(examples), long_texts=long_texts)

    @classmethod
    def from_metadata(cls, metadata: ModelMetadata) -> Self:
        names = cls.needed_names(metadata)
        thresholds = metadata.settings.get("thresholds", {})
        if not thresholds.keys() <= set(names):
            raise ConfigError(
                f"tidybert.json: thresholds is {thresholds!r:.80}; its keys must be names of labels"
            )
        return cls(
            names,
            thresholds,
            metadata.settings.get("temperature", 1.0),
            LongTexts.from_settings(metadata.settings),
        )

    def settings(self) -> dict[str, Any]:
        return {
            "thresholds": self.thresholds,
            "temperature": self.temperature,
            **super().settings(),
        }

    @classmethod
    def reads_head(cls, head: HeadDescription) -> bool:
        return super().reads_head(head) and head.problem_type == cls.problem_type

    def examine_labels(self, data: TrainingData[TextExample], report: DataReport) -> None:
        counts = Counter(label for one in data.train for label in labels_of(one))
        in_dev = Counter(label for one in data.held_out for label in labels_of(one))
        if not counts:
            report.errors.append(
                f"no training example has a label (is {param('label')} the right column?)"
            )
            return
        bare = sum(not one.labels for one in data.train)
        report.facts.append(
            f"labels: {counts.total() / len(data.train):.2f} a text on average; without any: "
            f"{count_of(bare, 'text')}"
        )
        if counts.keys() == {"0", "1"}:
            report.warnings.append(
                f"the labels are '0' and '1'; if {param('label')} names a column that says whether "
                "a text has a label, name one for each label, as in "
                f"{param('label', 'toxic,insult')}, or leave {param('multi_label')} out"
            )
        absent = {name: counts[name] for name in sorted(counts.keys() - in_dev, key=label_order)}
        if data.held_out and absent:
            report.warnings.append(
                f"labels that no dev example has: {listed(absent, SHOWN)} in training; the dev "
                "metrics count them as missed, and their thresholds cannot be tuned"
            )
        check_labels(report, counts, in_dev, "labels", remedy=LONE_ADVICE)
        check_joined(report, counts, are_several=True)

    @staticmethod
    def answer_key(example: TextExample) -> frozenset[str]:
        return frozenset(labels_of(example))

    def add_labels(self, features: Sequence[Features], examples: Sequence[TextExample]) -> None:
        """The labels become their ids, a tuple."""
        labels = ((label, one.row) for one in examples for label in one.labels or ())
        refuse_unknown("label", labels, self.label_ids)
        for one in features:
            example = examples[one.example]
            if example.labels is None:
                raise DataError(f"{LINE} {example.row}: the example has no list of labels")
            one.label = tuple(sorted(self.label_ids[label] for label in example.labels))

    def losses(self, outputs: Tensor, batch: Batch) -> Tensor:
        from torch.nn import functional

        truth, device = self.truth([one.label for one in batch.features]), outputs.device
        losses = functional.binary_cross_entropy_with_logits(
            outputs, tensor_on(device, truth).to(outputs.dtype), reduction="none"
        )
        if self._label_weights is not None:
            pairs = np.array([self._label_weights[name] for name in self.names])
            weights = np.where(truth, pairs[:, 1], pairs[:, 0])
            losses = losses * tensor_on(device, weights.astype(np.float32))
        return losses.mean(1)

    def imitation_losses(
        self, outputs: Tensor, taught: Tensor, batch: Batch, temperature: float
    ) -> Tensor:
        import torch

        # A sigmoid is the softmax of a logit and 0.
        ours, theirs = (
            torch.stack([each, torch.zeros_like(each)], -1) for each in (outputs, taught)
        )
        return softmax_divergence(ours, theirs, temperature).mean(1)

    def target(self, asked: Explained) -> Target:
        chosen = self.chosen_label(asked.label, asked.logits[0])
        return Target(self.names[chosen], (), lambda each: each[:, 0, chosen] / self.temperature)

    def calibrated(self, answers: LabelSetAnswers) -> Self:
        """One temperature of all decisions, and then the thresholds of the best F1.

        Labels of too few examples keep 0.5.
        """
        truth, logits = answers.truth, answers.logits
        decisions = np.stack([np.zeros(logits.size), logits.reshape(-1)], axis=1)
        temperature = fit_temperature(decisions, truth.reshape(-1))
        warmed = type(self)(self.names, None, temperature, self.long_texts, self._label_weights)
        thresholds, tuned = f1_thresholds(truth, warmed.probabilities(logits))
        chosen = {name: float(thresholds[at]) for at, name in enumerate(self.names) if tuned[at]}
        return type(self)(self.names, chosen, temperature, self.long_texts, self._label_weights)

    def truth(self, labels: Sequence[tuple[int, ...]]) -> Matrix:
        """(B, C) of the ids of B examples' labels."""
        truth = np.zeros((len(labels), len(self.names)), dtype=np.bool_)
        for row, ids in enumerate(labels):
            truth[row, list(ids)] = True
        return truth

    def probabilities(self, logits: npt.NDArray[np.float32]) -> Floats:
        """(B, C) of logits (B, C), each by itself."""
        # The exponential of a large negative logit overflows to infinity, and 0 is right.
        with np.errstate(over="ignore"):
            return np.asarray(1 / (1 + np.exp(-logits.astype(np.float64) / self.temperature)))

    def decisions(self, probabilities: Floats) -> Matrix:
        """(B, C): whether each probability, (B, C), reaches the threshold of its label."""
        thresholds = [self.thresholds.get(name, DEFAULT_THRESHOLD) for name in self.names]
        return probabilities >= np.array(thresholds)


def labels_of(example: TextExample) -> tuple[str, ...]:
    """Its labels, of any number; DataError where it has no list of them."""
    if example.labels is None:
        raise DataError(f"{LINE} {example.row}: the example has no list of labels; it needs one")
    return example.labels
