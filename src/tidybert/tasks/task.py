"""What a task is: how one job of BERT becomes examples, features, loss, metrics and answers.

To add a task, write one file with a class that has these members, and name it in registry.py (or
hand the class to ``registry.register``); docs/tasks.md has a complete one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.configuration import BertConfig
from tidybert.data.batching import Batch
from tidybert.data.checks import DataReport
from tidybert.data.features import BatchTokenizer, Features
from tidybert.files.read_options import ReadOptions
from tidybert.files.read_report import ReadReport
from tidybert.tasks.task_options import TaskOptions

Outputs = Sequence[npt.NDArray[np.float32]]
"""What the model said of each of the features: its rows, as many as the task's ``unit`` makes."""

Unit = Literal["feature", "sequence", "token"]

Scorer = Callable[[npt.NDArray[np.int64]], dict[str, float]]
"""The metrics of the examples with these numbers, which may repeat."""


@dataclass(frozen=True)
class Judgement:
    """How one example was answered, for a report.

    Args:
        text: what was asked, as a person would read it.
        expected: the right answer.
        predicted: the model's.
        correct: 1 for right, 0 for wrong, or a share between; None for a score.
        confidence: the probability that the model gives its answer; None for a score.
        expected_probability: the one it gives the right answer, where there are classes.
        num_tokens: of the whole example.
        row: its line in the file.
        id: the file's own name for it, where there is one.
    """

    text: str
    expected: str
    predicted: str
    correct: float | None
    confidence: float | None
    expected_probability: float | None
    num_tokens: int
    row: int
    id: str | None = None


class Example(Protocol):
    """What every task's examples have."""

    @property
    def row(self) -> int:
        """The 1-based line of the file."""
        ...


E = TypeVar("E", bound=Example)


class Task(Protocol[E]):
    """One job on examples of type E.

    ``features[i]`` belongs to ``examples[features[i].example]``, and ``outputs[i]`` to
    ``features[i]``.
    """

    name: str
    """As in tidybert.json, and in ``tidybert finetune NAME`` for all but variants."""
    metric: str
    """The key of ``metrics`` that picks the best checkpoint, the higher the better."""
    architecture: str
    """transformers' name of the model's class."""
    problem_type: str | None
    """transformers' name of the loss."""
    label_names: tuple[str, ...] | None
    """The classes in the order of their ids, or None."""
    unit: Unit
    """What one row of ``outputs`` belongs to."""
    meanings: ClassVar[Mapping[str, str]]
    """What each of the metrics to be shown says, in a few words, in the order of the table."""
    default_max_seq_length: ClassVar[int]
    """Tokens of a sequence where nobody says how many."""
    takes: ClassVar[frozenset[str]]
    """The fields of TaskOptions that mean something to it."""

    @property
    def truncation(self) -> str:
        """What happened to the examples whose features are truncated, after "3 of 9 examples"."""
        ...

    @classmethod
    def read(
        cls,
        path: str | Path,
        options: ReadOptions,
        *,
        need_label: bool,
        skip_bad_rows: bool = False,
        report: ReadReport | None = None,
    ) -> Iterator[E]:
        """The examples of a file, as a stream; see ``data.readers.read_examples``.

        Called on a task and not on its class, it may read labels as those that were learned.
        """
        ...

    @classmethod
    def from_texts(cls, texts: Sequence[Any], text_pairs: Sequence[Any] | None) -> list[E]:
        """Examples without labels, as ``Predictor.predict`` is given them."""
        ...

    @classmethod
    def hold_out(cls, examples: Sequence[E], fraction: float, seed: int) -> tuple[list[E], list[E]]:
        """Examples to train on and to measure on, with nothing on both sides."""
        ...

    @classmethod
    def from_examples(cls, examples: Sequence[E], options: TaskOptions) -> Self:
        """The task that these training examples ask for."""
        ...

    @classmethod
    def from_metadata(cls, metadata: ModelMetadata) -> Self:
        """The task of a finished RUN; ConfigError where tidybert.json lacks what it needs."""
        ...

    def settings(self) -> dict[str, Any]:
        """What ``from_metadata`` needs again, besides label_names, as JSON can hold it."""
        ...

    def build_model(self, config: BertConfig) -> nn.Module:
        """The encoder with this task's head, its weights newly drawn."""
        ...

    def features(
        self, examples: Sequence[E], tokenizer: BatchTokenizer, max_seq_length: int
    ) -> list[Features]:
        """One Features an example, or one a window, in the examples' order, without labels."""
        ...

    def check(
        self,
        train: Sequence[E],
        dev: Sequence[E] | None,
        train_features: Sequence[Features],
        dev_features: Sequence[Features],
        max_seq_length: int,
    ) -> DataReport:
        """What is worth knowing of the data before training; its errors stop it."""
        ...

    def add_labels(self, features: Sequence[Features], examples: Sequence[E]) -> None:
        """Set each label, and weight, from its example; DataError for a label that is unknown."""
        ...

    def start(self, model: nn.Module, features: Sequence[Features]) -> None:
        """Set what the new head can know of the training data before the first step."""
        ...

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The sum over the batch of each features' loss times its weight; a scalar."""
        ...

    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        """What the model says, (R, …): a row for each of the batch's ``unit``, in order."""
        ...

    def calibrated(
        self, outputs: Outputs, features: Sequence[Features], examples: Sequence[E]
    ) -> Self:
        """The same task with what its answers need fitted to these: temperature, thresholds."""
        ...

    def metrics(
        self, outputs: Outputs, features: Sequence[Features], examples: Sequence[E]
    ) -> dict[str, Any]:
        """Scores of the outputs against the labels, by name."""
        ...

    def predictions(
        self, outputs: Outputs, features: Sequence[Features], examples: Sequence[E]
    ) -> list[dict[str, Any]]:
        """One answer an example, as ``tidybert predict`` prints it."""
        ...

    def judgements(
        self, outputs: Outputs, features: Sequence[Features], examples: Sequence[E]
    ) -> list[Judgement]:
        """One an example, in order."""
        ...

    def scorer(
        self, outputs: Outputs, features: Sequence[Features], examples: Sequence[E]
    ) -> Scorer:
        """The metrics that are numbers, of any choice of the examples, quickly."""
        ...
