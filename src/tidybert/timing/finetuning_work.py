"""The fine-tuning that both sides of a measurement do: examples, batches and arguments."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

from tidybert.files.read_options import ReadOptions

if TYPE_CHECKING:
    from tidybert.training.training_arguments import TrainingArguments


@dataclass(frozen=True)
class FinetuningWork:
    """Train on a file's examples, then score another's."""

    task: str
    """classify, regress or choose."""
    model: str
    train: str
    dev: str | None
    """None: do not score."""
    options: ReadOptions
    num_examples: int | None = None
    """Train on this many examples from the first; None for all."""
    max_seq_length: int = 128
    train_batch_size: int = 32
    learning_rate: float = 5e-5
    num_train_epochs: int = 1
    max_steps: int | None = None
    freeze_layers: int = 0
    """Do not train the embeddings and this many of the lowest layers."""
    precision: str = "auto"
    """As finetune's, on both sides."""
    seed: int = 1
    threads: int | None = None
    """Of each process; None: PyTorch's choice."""

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        """From what ``asdict`` made of it."""
        return cls(**{**given, "options": ReadOptions(**given["options"])})


def read_work(work: FinetuningWork) -> tuple[Any, list[Any], list[Any]]:
    """The task, and the examples to train and to score on."""
    from tidybert.tasks.registry import task_class

    chosen = task_class(work.task)
    train = list(islice(chosen.read(work.train, work.options, need_label=True), work.num_examples))
    task = chosen.from_examples(train)
    dev = list(task.read(work.dev, work.options, need_label=True)) if work.dev else []
    return task, train, dev


def arguments_of(work: FinetuningWork) -> "TrainingArguments":
    """The training arguments of our side."""
    from tidybert.training.training_arguments import TrainingArguments

    return TrainingArguments(
        num_train_epochs=work.num_train_epochs,
        max_steps=work.max_steps,
        train_batch_size=work.train_batch_size,
        learning_rate=work.learning_rate,
        freeze_layers=work.freeze_layers,
        precision=work.precision,
        seed=work.seed,
    )


def batches_of(num_examples: int, work: FinetuningWork) -> Iterable[list[int]]:
    """The places of each batch's examples, in the order of our trainer."""
    from tidybert.data.batching import epoch_order

    for epoch in range(work.num_train_epochs):
        order = epoch_order(num_examples, work.seed, epoch)
        for start in range(0, num_examples, work.train_batch_size):
            yield order[start : start + work.train_batch_size].tolist()
