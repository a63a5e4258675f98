"""What a task is: how one job of BERT becomes features, loss, metrics and answers.

To add a task, write one file with a class that has these members and name it in ``task_for``.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from tidybert.checkpoints.directory import ModelMetadata
from tidybert.configuration import BertConfig
from tidybert.data.batching import Batch
from tidybert.data.examples import TextExample
from tidybert.data.features import BatchTokenizer, Features
from tidybert.errors import ConfigError


class Task(Protocol):
    """One job.  Its outputs are arrays (B, …) of a batch, one row an example."""

    name: str
    """As in ``tidybert finetune NAME`` and tidybert.json."""
    metric: str
    """The key of ``metrics`` that picks the best checkpoint, the higher the better."""
    architecture: str
    """transformers' name of the model's class."""
    problem_type: str | None
    """transformers' name of the loss."""
    label_names: tuple[str, ...] | None
    """The classes in the order of their ids, or None."""

    def build_model(self, config: BertConfig) -> nn.Module:
        """The encoder with this task's head, its weights newly drawn."""
        ...

    def features(
        self, examples: Sequence[TextExample], tokenizer: BatchTokenizer, max_seq_length: int
    ) -> list[Features]:
        """One Features an example, in order, without labels."""
        ...

    def add_labels(self, features: Sequence[Features], examples: Sequence[TextExample]) -> None:
        """Set each label, and weight, from its example; DataError for a label that is unknown."""
        ...

    def start(self, model: nn.Module, features: Sequence[Features]) -> None:
        """Set what the new head can know of the training data before the first step."""
        ...

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The sum over the batch of each example's loss times its weight; a scalar."""
        ...

    def outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        """What the model says of each example, (B, …)."""
        ...

    def metrics(
        self, outputs: npt.NDArray[np.float32], features: Sequence[Features]
    ) -> dict[str, Any]:
        """Scores of the outputs against the labels, by name."""
        ...

    def predictions(self, outputs: npt.NDArray[np.float32]) -> list[dict[str, Any]]:
        """One answer an example, as ``tidybert predict`` prints it."""
        ...


def task_for(metadata: ModelMetadata) -> Task:
    """The task that a finished RUN was trained for.

    Raises ConfigError for one that this program does not know.
    """
    from tidybert.tasks.classification import Classification
    from tidybert.tasks.regression import Regression

    if metadata.task == Classification.name and metadata.label_names:
        return Classification(metadata.label_names, temperature=metadata.temperature)
    if metadata.task == Regression.name:
        return Regression()
    raise ConfigError(
        f"tidybert.json names the task {metadata.task!r}; this program knows classify (with "
        "label_names) and regress"
    )
