"""Task: how one job of BERT becomes examples, features, a loss and answers.

A new task is a subclass; CONTRIBUTING.md has a complete one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Literal, Self

import numpy.typing as npt

from tidybert.checkpoints.example_kinds import ExampleKind
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.configuration import BertConfig
from tidybert.data.batching import Batch
from tidybert.data.checks import DataReport, E, TrainingData
from tidybert.data.features import Features
from tidybert.data.splits import Indices, drawn_split, grouped_split, random_split
from tidybert.errors import LINE, ConfigError, DataError, UsageError, param, suggestion
from tidybert.files.example_reader import ExampleReader
from tidybert.files.rows import count_of
from tidybert.tasks.answer import OwnAnswer, TaskAnswer
from tidybert.tasks.answers import Answers, Outputs
from tidybert.tasks.targets import Explained, Target
from tidybert.tasks.task_options import TaskOptions
from tidybert.tokenization import BertTokenizer

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from tidybert.checkpoints.model_directory import HeadDescription, ModelDirectory
    from tidybert.checkpoints.sentence_form import SentenceForm
    from tidybert.training.fine_tuning import FineTuning, Loss
    from tidybert.training.training_arguments import TrainingArguments

# How far a model's outputs are from a teacher's (Hinton et al. 2015, section 2).


def softmax_divergence(outputs: Tensor, taught: Tensor, temperature: float) -> Tensor:
    """(...) the divergence KL(teacher || model) over the last dimension, times temperature squared.

    Both are divided by the temperature first; its square keeps the size of the gradient.

    Args:
        outputs: (..., C) logits.
        taught: the same of the teacher, -inf where both are padding.
    """
    theirs = (taught / temperature).log_softmax(-1)
    ours = (outputs / temperature).log_softmax(-1)
    apart = (theirs - ours).masked_fill(taught == float("-inf"), 0.0)
    return (theirs.exp() * apart).sum(-1) * temperature**2


SHOWN_LABELS: Final = 20

Unit = Literal["feature", "sequence", "token"]


class Task(ABC, Generic[E]):
    """One job on examples of type E.

    ``features[i]`` belongs to ``examples[features[i].example]``.
    """

    name: ClassVar[str]
    """The name in tidybert.json and in ``tidybert finetune``."""
    architecture: ClassVar[str]
    """transformers' name of the model's class."""
    problem_type: ClassVar[str | None] = None
    """transformers' name of the loss."""
    meanings: ClassVar[Mapping[str, str]]
    """A few words about each metric, in the order of the table that shows them."""
    answer: ClassVar[type[TaskAnswer]] = OwnAnswer
    """What it answers to one example."""
    answers_class: ClassVar[type[Answers[Any, Any]]]
    """Its answers; a task may override ``answers`` instead."""
    options_class: ClassVar[type[TaskOptions]] = TaskOptions
    """Its own flags; ``registry`` names it too."""
    unit: ClassVar[Unit] = "feature"
    """The unit that one row of the outputs belongs to."""
    default_max_seq_length: ClassVar[int] = 128
    """Tokens of a sequence where no length is given."""
    inputs: ClassVar[ExampleKind | None] = None
    """What an example holds; None for a task of somebody's own that takes anything."""

    head: ClassVar[str | None] = None
    """The linear layer whose outputs ``summed_loss`` reads, so that it can begin as a probe."""
    probe_share: ClassVar[float] = 1.0
    """The share of the probe's weights that the head begins with where training follows.

    A whole probe already separates a few examples, so their loss hardly changes the encoder.
    Smaller outputs let it learn (Chizat et al. 2019, On Lazy Training in Differentiable
    Programming).
    """
    has_pooling: ClassVar[bool] = False
    """Whether the head reads one state a sequence, which may be [CLS]'s or the mean."""

    pools_itself: ClassVar[bool] = False
    """Whether the task pools the states of a plain encoder, which has no pooler."""

    metric: str
    """The metric that picks the best checkpoint, the higher the better."""
    correctness: str = "accuracy"
    """What the mean of ``Judgement.correct`` over examples is, in the words of a report."""
    label_names: tuple[str, ...] | None = None
    """The classes in the order of their ids, or None."""
    foreign_settings: ClassVar[Mapping[str, Any]] = {}
    """The settings of a model that another program trained."""
    read: ExampleReader[Any]
    """Reads a file as a stream of examples; an instance reads labels as those it has learned."""

    # --- from files and options to the task

    @classmethod
    @abstractmethod
    def from_texts(cls, texts: Sequence[Any], text_pairs: Sequence[Any] | None) -> list[E]:
        """Examples without labels, from the arguments of ``Predictor.predict``."""

    @classmethod
    def shown(cls, example: E) -> Sequence[str]:
        """The texts of an example, as a person reads them in a table or a report."""
        return (str(example),)

    @classmethod
    @abstractmethod
    def identity(cls, example: E) -> Any:
        """A hashable value, equal for two examples that a reader would call the same text."""

    @classmethod
    def inputs_of(cls, examples: Sequence[E]) -> ExampleKind | None:
        """What each of these examples holds; None where they differ."""
        return cls.inputs

    def check_inputs(self, examples: Sequence[E], inputs: ExampleKind | None) -> None:
        """Raise DataError where an example does not hold ``inputs``; None allows everything."""

    @classmethod
    def split(cls, examples: Sequence[E], fraction: float, seed: int) -> tuple[Indices, Indices]:
        """Numbers of the examples to train on and to measure on; see ``data.splits``."""
        same = [cls.identity(one) for one in examples]
        return random_split(len(examples), fraction, seed, texts=same)

    @classmethod
    def classes_of(cls, example: E) -> Collection[str]:
        """The classes of an example, which are trained on wherever they are measured."""
        return ()

    @classmethod
    def strata(cls, examples: Sequence[E], num_folds: int) -> Sequence[Collection[str]]:
        """By example what each of the folds has a like share of: its classes."""
        return [cls.classes_of(one) for one in examples]

    @classmethod
    def drawn_of(cls, examples: Sequence[E]) -> list[int]:
        """Numbers of those drawn at random to be labelled, where others were chosen."""
        return []

    @classmethod
    def drawn_counts(cls, examples: Sequence[E]) -> dict[str, Any]:
        """What a RUN records of them; {} for none."""
        return {}

    @classmethod
    def hold_out(
        cls,
        examples: Sequence[E],
        fraction: float,
        seed: int,
        groups: Sequence[Hashable] | None = None,
    ) -> tuple[list[E], list[E]]:
        """Examples to train on and to measure on, with no text, and no group, on both sides."""
        texts = [cls.identity(one) for one in examples]
        labels = [cls.classes_of(one) for one in examples]
        if groups is not None:
            train, dev = grouped_split(groups, fraction, seed, texts=texts, labels=labels)
        elif drawn := cls.drawn_of(examples):
            train, dev = drawn_split(drawn, fraction, seed, texts=texts, labels=labels)
        else:
            train, dev = cls.split(examples, fraction, seed)
        return [examples[number] for number in train], [examples[number] for number in dev]

    @classmethod
    @abstractmethod
    def from_examples(cls, examples: Sequence[E], options: Any = ...) -> Self:
        """The task that these training examples, and its ``options_class``, ask for."""

    @classmethod
    @abstractmethod
    def from_metadata(cls, metadata: ModelMetadata) -> Self:
        """The task of a finished RUN; ConfigError where tidybert.json lacks what it needs."""

    def begun_from(self, directory: ModelDirectory | None, pooling: str | None) -> Self:
        """The same task with what it takes from the MODEL that its training begins with.

        ``pooling``: what the user asks for, if anything.
        """
        return self

    @classmethod
    def are_measured(cls, examples: Sequence[E]) -> bool:
        """Whether examples like these say what is right, so that some can be held out."""
        return True

    def following(self, other: AnyTask) -> Self:
        """The same task with what it takes from that of a model in memory."""
        return self

    def completed(self, directory: ModelDirectory) -> Self:
        """The same task with what a finished RUN has of it beside the weights."""
        return self

    def attach(self, network: nn.Module) -> None:
        """Add to a network what the task puts after its model."""

    def sentence_form(self, max_seq_length: int) -> SentenceForm | None:
        """What sentence-transformers does with the states of a RUN; None where it has no use."""
        return None

    def settings(self) -> dict[str, Any]:
        """The values that ``from_metadata`` needs besides label_names, as JSON can hold them."""
        return {}

    @classmethod
    def reads_head(cls, head: HeadDescription) -> bool:
        """Whether the task can answer with a head that another program trained."""
        return cls.architecture in head.architectures

    @classmethod
    def names_in(cls, head: HeadDescription) -> tuple[str, ...] | None:
        """The labels of a head that it can answer with."""
        return None

    # --- from examples to batches

    @property
    def truncation(self) -> str:
        """How truncated examples lost a part, as the end of a sentence: "3 of 9 examples …"."""
        return f"were cut to {param('max_seq_length')}"

    @abstractmethod
    def features(
        self, examples: Sequence[E], tokenizer: BertTokenizer, max_seq_length: int
    ) -> list[Features]:
        """One Features an example, or one a window, in the examples' order, without labels."""

    @abstractmethod
    def add_labels(self, features: Sequence[Features], examples: Sequence[E]) -> None:
        """Set each label, and weight, from its example; DataError for a label that is unknown."""

    def check(self, data: TrainingData[E]) -> DataReport:
        """Check the data before training; the report's errors stop it."""
        report = data.report(self.name)
        if data.train:
            self.examine(data, report)
        return report

    @abstractmethod
    def examine(self, data: TrainingData[E], report: DataReport) -> None:
        """Add the task's findings to a report."""

    # --- the model

    def build_model(self, config: BertConfig) -> nn.Module:
        """The encoder with this task's head, and random weights."""
        from tidybert.modeling.heads import ARCHITECTURES

        return ARCHITECTURES[self.architecture].built(config, max(1, len(self.names)))

    def start(self, model: nn.Module, features: Sequence[Features]) -> None:
        """Set weights of a new head that follow from the training data, before the first step."""

    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        """The model's output, (R, …): a row for each ``unit`` of the batch, in order."""
        logits: Tensor = model(batch.rows, lower_states=batch.lower_states)
        return logits

    def num_rows(self, one: Features) -> int:
        """How many rows of the outputs belong to one of the features."""
        if self.unit == "feature":
            return 1
        return len(one.sequence_lengths if self.unit == "sequence" else one.input_ids)

    def losses(self, outputs: Tensor, batch: Batch) -> Tensor:
        """(F,) the loss of each of the batch's features, from float32 ``outputs``.

        A task gives this, or ``loss`` itself.
        """
        raise NotImplementedError(f"{type(self).__name__} defines neither losses nor loss")

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The sum over the batch of each loss times its weight; a scalar."""
        return self.summed_loss(self.trained_outputs(model, batch).float(), batch)

    def trained_outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        """The outputs that ``summed_loss`` reads, (R, …), ``num_head_rows`` of each feature."""
        return self.outputs(model, batch)

    def imitation_losses(
        self, outputs: Tensor, taught: Tensor, batch: Batch, temperature: float
    ) -> Tensor:
        """(F,) how far each feature's outputs are from a teacher's, both of ``trained_outputs``.

        A task without it takes no teacher.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define imitation_losses")

    def head_inputs(self, model: Any, batch: Batch) -> Tensor:
        """(R, H) the states that the head's linear layer reads for ``summed_loss``."""
        states: Tensor = model.head_inputs(batch.rows, lower_states=batch.lower_states)
        return states

    def num_head_rows(self, one: Features) -> int:
        """How many of these states belong to one of the features."""
        return self.num_rows(one)

    def as_outputs(self, rows: Any, one: Features) -> Any:
        """``outputs`` of one of the features from what its linear layer gives, (r, C)."""
        return rows

    def summed_loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """The sum over the batch of each loss times its weight, a scalar, from outputs (R, C)."""
        losses = self.losses(outputs, batch)
        return (losses * weights_of(batch, losses)).sum()

    def objective(
        self,
        model: nn.Module,
        features: Sequence[Features],
        loss: Loss,
        arguments: TrainingArguments,
        **given: Any,
    ) -> FineTuning:
        """What a step of its training is, from the arguments of FineTuning."""
        from tidybert.training.fine_tuning import FineTuning

        return FineTuning(model, features, loss, arguments, **given)

    # --- its answers

    def answers(
        self, outputs: Outputs, features: Sequence[Features], examples: Sequence[E]
    ) -> Answers[Any, E]:
        """The answers that the outputs give to the examples."""
        return self.answers_class(self, outputs, features, examples)

    def target(self, asked: Explained) -> Target:
        """The answer to one input that attributions explain: its own, or the one of its label.

        Raises UsageError for a label that the model does not know.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define target")

    def chosen_label(self, label: str | None, logits: Tensor) -> int:
        """The number of a label, or of the likeliest one by logits (C,)."""
        if label is None:
            return int(logits.argmax())
        if label not in self.names:
            raise UsageError(
                f"{param('target', label)}: the model knows {', '.join(self.names[:SHOWN_LABELS])}"
                + suggestion(label, self.names)
            )
        return self.label_ids[label]

    def with_min_score(self, min_score: float | None) -> Self:
        """The same task, which gives no label below a score; None leaves it as it is."""
        if min_score is not None:
            raise UsageError(
                f"{param('min_score')} is for models that give one label, and this one was trained "
                f"to {self.name}: leave it out"
            )
        return self

    def calibrated(self, answers: Any) -> Self:
        """The same task with temperature and thresholds fitted to its answers on labelled data."""
        return self

    # --- its labels

    @property
    def names(self) -> tuple[str, ...]:
        """``label_names``, empty where the task has none."""
        return self.label_names or ()

    @cached_property
    def label_ids(self) -> dict[str, int]:
        """The id of each label."""
        return {label: number for number, label in enumerate(self.names)}

    @classmethod
    def needed_names(cls, metadata: ModelMetadata) -> tuple[str, ...]:
        """The labels in tidybert.json; ConfigError where it has none."""
        if not metadata.label_names:
            raise ConfigError(f"tidybert.json: {cls.name} needs label_names; give them")
        return metadata.label_names


AnyTask = Task[Any]


def tensor_on(device: torch.device, values: Sequence[Any] | npt.NDArray[Any]) -> Tensor:
    """A tensor of values on a device, to which it goes without waiting."""
    import torch

    from tidybert.modeling.kernels.transfer import to_device

    return to_device(torch.as_tensor(values), device)


def weights_of(batch: Batch, losses: Tensor) -> Tensor:
    """(F,) the weights of the batch's features, on the losses' device."""
    return tensor_on(losses.device, [one.weight for one in batch.features])


def labels_of(batch: Batch, outputs: Tensor) -> Tensor:
    """The labels of the batch's features, on the outputs' device."""
    return tensor_on(outputs.device, [one.label for one in batch.features])


def refuse_unknown(noun: str, labels: Iterable[tuple[str, int]], known: Collection[str]) -> None:
    """Raise DataError where a label is not ``known``; it lists the most frequent first.

    Args:
        noun: what a label is to the user: label, tag.
        labels: each label of each example, and the example's line.
        known: the model's, in the order of their ids.
    """
    counts: dict[str, int] = {}
    first_line: dict[str, int] = {}
    for label, line in labels:
        if label not in known:
            counts[label] = counts.get(label, 0) + 1
            first_line.setdefault(label, line)
    if not counts:
        return
    listed = []
    for label in sorted(counts, key=lambda name: -counts[name]):
        times = "" if counts[label] == 1 else f"{counts[label]:,} times, the first "
        listed.append(f"  {label!r}, {times}on {LINE} {first_line[label]}")
    more = [f"  and {len(listed) - SHOWN_LABELS:,} more"] if listed[SHOWN_LABELS:] else []
    rest = f" and {len(known) - SHOWN_LABELS:,} more" if len(known) > SHOWN_LABELS else ""
    lines = [
        f"{count_of(len(counts), noun)} that the model does not know:",
        *listed[:SHOWN_LABELS],
        *more,
        f"It knows {len(known):,}: {', '.join(list(known)[:SHOWN_LABELS])}{rest}",
        f"Spell the {noun}s as it does, or leave these examples out",
    ]
    raise DataError("\n".join(lines))
