"""classify --multi-label: any number of labels a text, each decided by itself.

The head is the classifier's, each output a label's logit, and the loss the binary cross-entropy.
That of an example is the mean over its labels, as in transformers.
"""

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
from tidybert.data.splits import stratified_split
from tidybert.errors import LINE, ConfigError, DataError, param
from tidybert.files.labels import label_names
from tidybert.files.text_examples import TextExample
from tidybert.metrics.calibration import fit_temperature
from tidybert.metrics.multi_label_scores import (
    DEFAULT_THRESHOLD,
    MultiLabelScorer,
    f1_thresholds,
    multi_label_metrics,
)
from tidybert.modeling.heads import BertForSequenceClassification
from tidybert.tasks.task import Judgement, Outputs, Scorer, Unit
from tidybert.tasks.task_options import TaskOptions
from tidybert.tasks.text_task import TextTask, example_outputs, shown_text
from tidybert.tasks.unknown_labels import refuse_unknown

Floats = npt.NDArray[np.float64]


class MultiLabelClassification(TextTask):
    """Binary cross-entropy on each of the labels.

    Args:
        label_names: in the order of their ids.
        thresholds: by name, the probability from which a label is given; 0.5 where there is none,
            as for those of too few examples to tune it.
        temperature: answers divide logits by this before the sigmoid.
        long_texts: what becomes of texts that are too long; None cuts off their end.
    """

    name = "multi-label"
    kind = "multi-label"
    # It needs no threshold, and thresholds are tuned only when training has ended.
    metric = "macro_average_precision"
    architecture = "BertForSequenceClassification"
    problem_type: str | None = "multi_label_classification"
    unit: Unit = "feature"
    meanings: ClassVar[Mapping[str, str]] = {
        "micro_f1": "F1 of all decisions together",
        "macro_f1": "mean F1 of the labels, however rare",
        "subset_accuracy": "share of the texts whose labels are all right",
        "hamming_loss": "share of the decisions that are wrong",
        "macro_average_precision": "mean over labels of the precision at every recall",
    }
    takes: ClassVar[frozenset[str]] = frozenset({"multi_label", "long", "doc_stride"})

    def __init__(
        self,
        label_names: Sequence[str],
        thresholds: Mapping[str, float] | None = None,
        temperature: float = 1.0,
        long_texts: LongTexts | None = None,
    ) -> None:
        super().__init__(long_texts)
        self.label_names: tuple[str, ...] | None = tuple(label_names)
        self._names = tuple(label_names)
        self._ids = {label: number for number, label in enumerate(self._names)}
        self.thresholds = dict(thresholds or {})
        self.temperature = temperature

    @classmethod
    def hold_out(
        cls, examples: Sequence[TextExample], fraction: float, seed: int
    ) -> tuple[list[TextExample], list[TextExample]]:
        """A text counts for its rarest label; none that is measured is without a text to learn."""
        counts: dict[str, int] = {}
        for example in examples:
            for label in example.labels or ():
                counts[label] = counts.get(label, 0) + 1
        rarest = [min(e.labels, key=counts.__getitem__) if e.labels else "" for e in examples]
        texts = [(one.text, one.text_pair) for one in examples]
        train, dev = stratified_split(rarest, fraction, seed, texts=texts)
        known = {label for index in train for label in examples[index].labels or ()}
        needed: set[tuple[str, str | None]] = set()
        for index in dev:
            if not known.issuperset(labels := examples[index].labels or ()):
                known.update(labels)
                needed.add(texts[index])
        if all(texts[index] in needed for index in dev):
            raise DataError(
                f"{len(examples)} texts cannot be split: each of those that could be held out has "
                f"a label of its own; add examples, or name a dev file with {param('dev')}"
            )
        held_out = {index for index in dev.tolist() if texts[index] not in needed}
        return (
            [each for index, each in enumerate(examples) if index not in held_out],
            [each for index, each in enumerate(examples) if index in held_out],
        )

    @classmethod
    def from_examples(cls, examples: Sequence[TextExample], options: TaskOptions) -> Self:
        long_texts = LongTexts.from_options(options.long, options.doc_stride)
        return cls(label_names(examples), long_texts=long_texts)

    @classmethod
    def from_metadata(cls, metadata: ModelMetadata) -> Self:
        if not metadata.label_names:
            raise ConfigError(f"tidybert.json: {cls.name} needs label_names, and there are none")
        thresholds = metadata.settings.get("thresholds", {})
        names = set(metadata.label_names)
        if not isinstance(thresholds, Mapping) or not all(
            name in names and type(value) in (int, float) and 0 <= value <= 1
            for name, value in thresholds.items()
        ):
            raise ConfigError(
                f"tidybert.json: thresholds is {thresholds!r:.80}; numbers from 0 to 1 "
                "under names of labels are needed"
            )
        return cls(
            metadata.label_names,
            thresholds,
            metadata.number("temperature", 1.0),
            LongTexts.from_settings(metadata.settings),
        )

    def settings(self) -> dict[str, Any]:
        return {
            "thresholds": self.thresholds,
            "temperature": self.temperature,
            **self.long_texts.settings(),
        }

    def build_model(self, config: BertConfig) -> BertForSequenceClassification:
        return BertForSequenceClassification(config, num_labels=len(self._names))

    def add_labels(self, features: Sequence[Features], examples: Sequence[TextExample]) -> None:
        """The labels become their ids, a tuple."""
        labels = ((label, one.row) for one in examples for label in one.labels or ())
        refuse_unknown("label", labels, self._ids)
        for one in features:
            example = examples[one.example]
            if example.labels is None:
                raise DataError(f"{LINE} {example.row}: the example has no list of labels")
            one.label = tuple(sorted(self._ids[label] for label in example.labels))

    def start(self, model: nn.Module, features: Sequence[Features]) -> None:
        """Nothing: the head begins as it was drawn."""

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        logits = self.outputs(model, batch).float()
        labels = torch.from_numpy(self._truth(batch.features)).to(logits)
        weights = torch.tensor([one.weight for one in batch.features], device=logits.device)
        losses = functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")
        return (losses.mean(1) * weights).sum()

    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        logits: Tensor = model(batch.rows, lower_states=batch.lower_states)
        return logits

    def calibrated(
        self, outputs: Outputs, features: Sequence[Features], examples: Sequence[TextExample]
    ) -> Self:
        """One temperature of all decisions, and then the thresholds of the best F1.

        Labels of too few examples keep 0.5.
        """
        truth = self._truth(first_features(features))
        logits = example_outputs(outputs, features)
        decisions = np.stack([np.zeros(logits.size), logits.reshape(-1)], axis=1)
        temperature = fit_temperature(decisions, truth.reshape(-1))
        warmed = type(self)(self._names, None, temperature, self.long_texts)
        thresholds, tuned = f1_thresholds(truth, warmed.probabilities(logits))
        chosen = {name: float(thresholds[at]) for at, name in enumerate(self._names) if tuned[at]}
        return type(self)(self._names, chosen, temperature, self.long_texts)

    def metrics(
        self, outputs: Outputs, features: Sequence[Features], examples: Sequence[TextExample]
    ) -> dict[str, Any]:
        """Those of ``multi_label_metrics``; per_label has each threshold, None where not tuned."""
        probabilities = self.probabilities(example_outputs(outputs, features))
        found = multi_label_metrics(
            self._truth(first_features(features)),
            self.decisions(probabilities),
            self._names,
            probabilities,
        )
        for name, each in found["per_label"].items():
            each["threshold"] = self.thresholds.get(name)
        return found

    def predictions(
        self, outputs: Outputs, features: Sequence[Features], examples: Sequence[TextExample]
    ) -> list[dict[str, Any]]:
        probabilities = self.probabilities(example_outputs(outputs, features))
        answers = [
            {
                "labels": self._chosen(decided),
                "scores": dict(zip(self._names, scores, strict=True)),
            }
            for scores, decided in zip(
                probabilities.tolist(), self.decisions(probabilities), strict=True
            )
        ]
        return self.with_windows(answers, features)

    def judgements(
        self, outputs: Outputs, features: Sequence[Features], examples: Sequence[TextExample]
    ) -> list[Judgement]:
        """An answer is right where all its labels are; its probability is the product of theirs."""
        probabilities = self.probabilities(example_outputs(outputs, features))
        firsts = first_features(features)
        decisions, truth = self.decisions(probabilities), self._truth(firsts)
        sure = np.where(decisions, probabilities, 1 - probabilities).prod(1)
        expected = np.where(truth, probabilities, 1 - probabilities).prod(1)
        return [
            Judgement(
                text=shown_text(example),
                expected=", ".join(self._chosen(truth[at])) or "(none)",
                predicted=", ".join(self._chosen(decisions[at])) or "(none)",
                correct=float((truth[at] == decisions[at]).all()),
                confidence=float(sure[at]),
                expected_probability=float(expected[at]),
                num_tokens=one.num_tokens,
                row=example.row,
            )
            for at, (example, one) in enumerate(zip(examples, firsts, strict=True))
        ]

    def scorer(
        self, outputs: Outputs, features: Sequence[Features], examples: Sequence[TextExample]
    ) -> Scorer:
        probabilities = self.probabilities(example_outputs(outputs, features))
        truth = self._truth(first_features(features))
        return MultiLabelScorer(truth, self.decisions(probabilities), probabilities)

    def _truth(self, features: Sequence[Features]) -> npt.NDArray[np.bool_]:
        """(number of features, C)."""
        truth = np.zeros((len(features), len(self._names)), dtype=np.bool_)
        for row, one in enumerate(features):
            truth[row, list(one.label)] = True
        return truth

    def probabilities(self, logits: npt.NDArray[np.float32]) -> Floats:
        """(B, C) of logits (B, C), each by itself."""
        # Of a large negative logit the exponential overflows to infinity, and 0 is right.
        with np.errstate(over="ignore"):
            return np.asarray(1 / (1 + np.exp(-logits.astype(np.float64) / self.temperature)))

    def decisions(self, probabilities: Floats) -> npt.NDArray[np.bool_]:
        """(B, C): whether each probability, (B, C), reaches the threshold of its label."""
        thresholds = [self.thresholds.get(name, DEFAULT_THRESHOLD) for name in self._names]
        return probabilities >= np.array(thresholds)

    def _chosen(self, decided: npt.NDArray[np.bool_]) -> list[str]:
        return [self._names[at] for at in np.flatnonzero(decided)]
