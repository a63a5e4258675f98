"""choose: which of some texts continues or answers another (SWAG, paper 4.4).

Each choice is a sequence [CLS] context [SEP] start and choice [SEP] with one logit, and the softmax
is over the choices of an example, however many it has.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.configuration import BertConfig
from tidybert.data.batching import Batch
from tidybert.data.checks import DataReport
from tidybert.data.features import BatchTokenizer, Features, text_features
from tidybert.data.splits import random_split
from tidybert.errors import LINE, DataError, param
from tidybert.files.read_options import ReadOptions
from tidybert.files.read_report import Problem, ReadReport
from tidybert.metrics.calibration import fit_temperature_ragged
from tidybert.modeling.heads import BertForMultipleChoice
from tidybert.tasks.choices.choice_checks import check_choices
from tidybert.tasks.choices.choice_files import ChoiceExample, choice_example, read_choices
from tidybert.tasks.task import Judgement, Outputs, Scorer, Unit
from tidybert.tasks.task_options import TaskOptions

Floats = npt.NDArray[np.float64]


class MultipleChoice:
    """Cross-entropy over the choices of each example.

    Args:
        temperature: answers divide logits by this before the softmax.
    """

    name = "choose"
    metric = "accuracy"
    architecture = "BertForMultipleChoice"
    problem_type: str | None = None
    label_names: tuple[str, ...] | None = None
    unit: Unit = "sequence"
    meanings: ClassVar[Mapping[str, str]] = {
        "accuracy": "share of the examples whose right choice is chosen",
        "log_loss": "mean of -ln(probability of the right choice)",
    }
    default_max_seq_length: ClassVar[int] = 128
    truncation: ClassVar[str] = f"were cut to {param('max_seq_length')}"
    takes: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, temperature: float = 1.0) -> None:
        self.temperature = temperature

    @classmethod
    def read(
        cls,
        path: str | Path,
        options: ReadOptions,
        *,
        need_label: bool,
        skip_bad_rows: bool = False,
        report: ReadReport | None = None,
    ) -> Iterator[ChoiceExample]:
        return read_choices(
            path, options, need_label=need_label, skip_bad_rows=skip_bad_rows, report=report
        )

    @classmethod
    def from_texts(
        cls, texts: Sequence[str], text_pairs: Sequence[Sequence[str]] | None
    ) -> list[ChoiceExample]:
        """Contexts, and the list of each one's choices."""
        if text_pairs is None:
            raise DataError("only contexts were given; give the choices of each as a second list")
        examples = []
        for row, (context, choices) in enumerate(zip(texts, text_pairs, strict=True), start=1):
            if isinstance(choices, str):
                raise DataError(f"the choices of context {row} are one text; give a list of texts")
            made = choice_example(row, context, "", choices, None, need_label=False)
            if isinstance(made, Problem):
                raise DataError(f"context {row}: {made.message}")
            examples.append(made)
        return examples

    @classmethod
    def hold_out(
        cls, examples: Sequence[ChoiceExample], fraction: float, seed: int
    ) -> tuple[list[ChoiceExample], list[ChoiceExample]]:
        """No context is on both sides, but for one that all examples have, as an instruction is."""
        contexts: list[Hashable] = [one.context for one in examples]
        if len(set(contexts)) == 1:
            contexts = [(one.start, frozenset(one.choices)) for one in examples]
        train, dev = random_split(len(examples), fraction, seed, texts=contexts)
        return [examples[index] for index in train], [examples[index] for index in dev]

    @classmethod
    def from_examples(cls, examples: Sequence[ChoiceExample], options: TaskOptions) -> Self:
        return cls()

    @classmethod
    def from_metadata(cls, metadata: ModelMetadata) -> Self:
        return cls(metadata.number("temperature", 1.0))

    def settings(self) -> dict[str, Any]:
        return {"temperature": self.temperature}

    def build_model(self, config: BertConfig) -> BertForMultipleChoice:
        return BertForMultipleChoice(config)

    def features(
        self, examples: Sequence[ChoiceExample], tokenizer: BatchTokenizer, max_seq_length: int
    ) -> list[Features]:
        """A sequence a choice; the example has as many tokens as its longest."""
        pairs = [(one.context, choice) for one in examples for choice in one.continued()]
        sequences = iter(
            text_features(
                tokenizer, [pair[0] for pair in pairs], [pair[1] for pair in pairs], max_seq_length
            )
        )
        features = []
        for number, example in enumerate(examples):
            parts = [next(sequences) for _ in example.choices]
            features.append(
                Features(
                    np.concatenate([one.input_ids for one in parts]),
                    np.concatenate([one.token_type_ids for one in parts]),
                    max(one.num_tokens for one in parts),
                    any(one.truncated for one in parts),
                    tuple(len(one.input_ids) for one in parts),
                    number,
                )
            )
        return features

    def check(
        self,
        train: Sequence[ChoiceExample],
        dev: Sequence[ChoiceExample] | None,
        train_features: Sequence[Features],
        dev_features: Sequence[Features],
        max_seq_length: int,
    ) -> DataReport:
        return check_choices(train, dev, train_features, dev_features, max_seq_length)

    def add_labels(self, features: Sequence[Features], examples: Sequence[ChoiceExample]) -> None:
        for one in features:
            example = examples[one.example]
            if example.label is None:
                raise DataError(f"{LINE} {example.row}: the example has no answer; it needs one")
            one.label = example.label

    def start(self, model: nn.Module, features: Sequence[Features]) -> None:
        """Nothing: the head begins as it was drawn, as in the original code."""

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        logits = self.outputs(model, batch).float()
        counts = [len(one.lengths) for one in batch.features]
        starts = np.cumsum([0, *counts[:-1]])
        right = [int(first) + one.label for first, one in zip(starts, batch.features, strict=True)]
        weights = torch.tensor([one.weight for one in batch.features], device=logits.device)
        chosen = logits[torch.tensor(right, device=logits.device)]
        return ((segment_logsumexp(logits, counts) - chosen) * weights).sum()

    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        logits: Tensor = model(batch.rows, lower_states=batch.lower_states)
        return logits

    def calibrated(
        self, outputs: Outputs, features: Sequence[Features], examples: Sequence[ChoiceExample]
    ) -> Self:
        return type(self)(fit_temperature_ragged(outputs, [one.label for one in features]))

    def metrics(
        self, outputs: Outputs, features: Sequence[Features], examples: Sequence[ChoiceExample]
    ) -> dict[str, Any]:
        return self.scorer(outputs, features, examples)(np.arange(len(features)))

    def predictions(
        self, outputs: Outputs, features: Sequence[Features], examples: Sequence[ChoiceExample]
    ) -> list[dict[str, Any]]:
        answers = []
        for example, log_scores in zip(examples, self._log_probabilities(outputs), strict=True):
            best = int(log_scores.argmax())
            scores = np.exp(log_scores).tolist()
            answers.append(
                {
                    "choice": best,
                    "text": example.choices[best],
                    "score": scores[best],
                    "scores": scores,
                }
            )
        return answers

    def judgements(
        self, outputs: Outputs, features: Sequence[Features], examples: Sequence[ChoiceExample]
    ) -> list[Judgement]:
        answers = self.predictions(outputs, features, examples)
        return [
            Judgement(
                text="\n".join(filter(None, (example.context, example.start))),
                expected=example.choices[one.label],
                predicted=answer["text"],
                correct=float(answer["choice"] == one.label),
                confidence=answer["score"],
                expected_probability=answer["scores"][one.label],
                num_tokens=one.num_tokens,
                row=example.row,
            )
            for example, one, answer in zip(examples, features, answers, strict=True)
        ]

    def scorer(
        self, outputs: Outputs, features: Sequence[Features], examples: Sequence[ChoiceExample]
    ) -> Scorer:
        log_scores = self._log_probabilities(outputs)
        pairs = list(zip(log_scores, features, strict=True))
        right = np.array([each.argmax() == one.label for each, one in pairs])
        losses = np.array([-each[one.label] for each, one in pairs])

        def score(chosen: npt.NDArray[np.int64]) -> dict[str, float]:
            return {
                "accuracy": float(right[chosen].mean()),
                "log_loss": float(losses[chosen].mean()),
            }

        return score

    def _log_probabilities(self, outputs: Outputs) -> list[Floats]:
        """(C,) of each example."""
        log_scores = []
        for logits in outputs:
            scaled = logits.astype(np.float64) / self.temperature
            scaled -= scaled.max()
            log_scores.append(scaled - np.log(np.exp(scaled).sum()))
        return log_scores


def segment_logsumexp(logits: Tensor, counts: Sequence[int]) -> Tensor:
    """(B,) log-sum-exps of logits (S,), of which the first counts[0] belong together, and so on."""
    lengths = torch.tensor(counts, device=logits.device)
    segments = torch.arange(len(counts), device=logits.device).repeat_interleave(lengths)
    largest = logits.detach().new_full((len(counts),), -torch.inf)
    largest = largest.scatter_reduce(0, segments, logits.detach(), "amax")
    sums = logits.new_zeros(len(counts)).index_add(0, segments, (logits - largest[segments]).exp())
    return sums.log() + largest
