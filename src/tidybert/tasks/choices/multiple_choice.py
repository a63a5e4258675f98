"""choose: which of some texts continues or answers another (SWAG, paper 4.4).

Each choice is a sequence [CLS] context [SEP] start and choice [SEP] with one logit, and the softmax
is over the choices of an example, however many it has.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from tidybert.checkpoints.example_kinds import CHOICES
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.data.batching import Batch
from tidybert.data.checks import (
    DataReport,
    TrainingData,
    check_leaks,
    check_lengths,
    check_repetition,
    warn_of_empty,
)
from tidybert.data.features import Features, text_features
from tidybert.data.splits import Indices, random_split
from tidybert.errors import LINE, DataError
from tidybert.files.rows import Problem
from tidybert.metrics.calibration import fit_temperature
from tidybert.metrics.metric import meanings_of
from tidybert.metrics.text_scores import ChoiceScores
from tidybert.tasks.answer import Chosen
from tidybert.tasks.answers import Answers, Floats, Judgement
from tidybert.tasks.choices.choice_files import ChoiceExample, choice_example, read_choices
from tidybert.tasks.task import Task, softmax_divergence, tensor_on
from tidybert.tasks.task_options import TaskOptions
from tidybert.tokenization import BertTokenizer

if TYPE_CHECKING:
    from torch import Tensor


class ChosenAnswers(Answers["MultipleChoice", ChoiceExample]):
    """A probability for each choice."""

    @cached_property
    def log_probabilities(self) -> list[Floats]:
        """(C,) of each example."""
        found = []
        for logits in self.outputs:
            scaled = logits.astype(np.float64) / self.task.temperature
            scaled -= scaled.max()
            found.append(scaled - np.log(np.exp(scaled).sum()))
        return found

    @cached_property
    def right(self) -> npt.NDArray[np.bool_]:
        """(N,) whether the right choice is the likeliest."""
        pairs = zip(self.log_probabilities, self.features, strict=True)
        return np.array([each.argmax() == one.label for each, one in pairs])

    @cached_property
    def losses(self) -> Floats:
        """(N,) -ln(probability of the right choice)."""
        pairs = zip(self.log_probabilities, self.features, strict=True)
        return np.array([-each[one.label] for each, one in pairs])

    def metrics(self, chosen: Indices | None = None) -> dict[str, Any]:
        which = slice(None) if chosen is None else chosen
        return {
            "accuracy": float(self.right[which].mean()),
            "log_loss": float(self.losses[which].mean()),
        }

    def prediction(self, number: int) -> Chosen:
        scores = np.exp(self.log_probabilities[number]).tolist()
        best = int(self.log_probabilities[number].argmax())
        return Chosen(best, self.examples[number].choices[best], scores[best], scores)

    def judgement(self, number: int) -> Judgement:
        example, one = self.examples[number], self.features[number]
        answer = self.prediction(number)
        return Judgement(
            text="\n".join(self.task.shown(example)),
            expected=example.choices[one.label],
            predicted=answer.text,
            correct=float(answer.choice == one.label),
            confidence=answer.score,
            expected_probability=answer.scores[one.label],
            num_tokens=one.num_tokens,
            row=example.row,
        )


@dataclass(eq=False)
class MultipleChoice(Task[ChoiceExample]):
    """Cross-entropy over the choices of each example."""

    temperature: float = 1.0
    """Answers divide logits by this before the softmax."""

    name = "choose"
    inputs = CHOICES
    answer, answers_class = Chosen, ChosenAnswers
    metric = "accuracy"
    architecture = "BertForMultipleChoice"
    read = read_choices
    unit = "sequence"
    head = "classifier"
    has_pooling = True
    meanings = meanings_of(ChoiceScores)

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
    def shown(cls, example: ChoiceExample) -> Sequence[str]:
        return ("\n".join(filter(None, (example.context, example.start))),)

    @classmethod
    def identity(cls, example: ChoiceExample) -> Hashable:
        """The choices in whatever order."""
        return example.context, example.start, frozenset(example.choices)

    @classmethod
    def split(
        cls, examples: Sequence[ChoiceExample], fraction: float, seed: int
    ) -> tuple[Indices, Indices]:
        """No context is on both sides, unless all examples share one, such as an instruction."""
        contexts = [one.context for one in examples]
        if len(set(contexts)) == 1:
            return super().split(examples, fraction, seed)
        return random_split(len(examples), fraction, seed, texts=contexts)

    @classmethod
    def from_examples(
        cls, examples: Sequence[ChoiceExample], options: TaskOptions = TaskOptions()
    ) -> Self:
        return cls()

    @classmethod
    def from_metadata(cls, metadata: ModelMetadata) -> Self:
        return cls(metadata.settings.get("temperature", 1.0))

    def settings(self) -> dict[str, Any]:
        return {"temperature": self.temperature}

    def features(
        self, examples: Sequence[ChoiceExample], tokenizer: BertTokenizer, max_seq_length: int
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
            features.append(Features.of_sequences(parts, number))
        return features

    def examine(self, data: TrainingData[ChoiceExample], report: DataReport) -> None:
        check_numbers(report, data)
        warn_of_empty(report, data, _is_empty, noun="text")
        check_equal_choices(report, data)
        check_repetition(
            report, data, self.identity, _right_choice, noun="question", label="answer"
        )
        check_leaks(report, data, self.identity, noun="question")
        check_lengths(report, data)

    def add_labels(self, features: Sequence[Features], examples: Sequence[ChoiceExample]) -> None:
        for one in features:
            example = examples[one.example]
            if example.label is None:
                raise DataError(f"{LINE} {example.row}: the example has no answer; it needs one")
            one.label = example.label

    def losses(self, outputs: Tensor, batch: Batch) -> Tensor:
        counts = [len(one.lengths) for one in batch.features]
        starts = np.cumsum([0, *counts[:-1]])
        right = [int(first) + one.label for first, one in zip(starts, batch.features, strict=True)]
        outputs = outputs.reshape(-1)  # a probe's are (S, 1)
        chosen = outputs[tensor_on(outputs.device, right)]
        return segment_logsumexp(outputs, counts) - chosen

    def as_outputs(self, rows: Any, one: Features) -> Any:
        return rows[:, 0]

    def imitation_losses(
        self, outputs: Tensor, taught: Tensor, batch: Batch, temperature: float
    ) -> Tensor:
        from torch.nn.utils.rnn import pad_sequence

        starts = np.cumsum([len(one.lengths) for one in batch.features[:-1]]).tolist()

        def padded(logits: Tensor) -> Tensor:
            parts = list(logits.reshape(-1).tensor_split(starts))
            return pad_sequence(parts, batch_first=True, padding_value=float("-inf"))

        return softmax_divergence(padded(outputs), padded(taught), temperature)

    def calibrated(self, answers: ChosenAnswers) -> Self:
        labels = [one.label for one in answers.features]
        return type(self)(fit_temperature(answers.outputs, labels))


def segment_logsumexp(logits: Tensor, counts: Sequence[int]) -> Tensor:
    """(B,) log-sum-exps of logits (S,), of which the first counts[0] belong together, and so on."""
    segments = tensor_on(logits.device, np.repeat(np.arange(len(counts)), counts))
    largest = logits.detach().new_full((len(counts),), float("-inf"))
    largest = largest.scatter_reduce(0, segments, logits.detach(), "amax")
    sums = logits.new_zeros(len(counts)).index_add(0, segments, (logits - largest[segments]).exp())
    return sums.log() + largest


def _is_empty(one: ChoiceExample) -> bool:
    return not (one.context + one.start).strip()


def _right_choice(one: ChoiceExample) -> str | None:
    return None if one.label is None else one.choices[one.label]


def check_numbers(report: DataReport, data: TrainingData[ChoiceExample]) -> None:
    """Report the number of choices, and how often a guess is right."""
    numbers = [len(one.choices) for one in data.train]
    least, most = min(numbers), max(numbers)
    report.facts.append(f"choices: {least if least == most else f'{least} to {most}'} an example")
    measured = data.dev or data.train
    chance = sum(1 / len(one.choices) for one in measured) / len(measured)
    part = "dev" if data.dev else "training"
    report.facts.append(f"a guess is right in {chance:.1%} of the {part} examples")


def check_equal_choices(report: DataReport, data: TrainingData[ChoiceExample]) -> None:
    """Warn of examples that have a choice twice."""
    for counted, lines in data.those(lambda one: len(set(one.choices)) < len(one.choices)):
        report.warnings.append(
            f"{counted} with equal choices ({lines}), which no model can tell apart; change one of "
            "them"
        )
