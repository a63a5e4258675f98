"""The fine-tuning that both sides do: a job's examples, in one order, with one set of arguments."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.harness.datasets import JOBS, examples_of
from tidybert.catalog import find_model
from tidybert.data.batching import epoch_order
from tidybert.storage.model_files import CONFIG_FILE, METADATA_FILE
from tidybert.tasks.registry import task_class
from tidybert.training.training_arguments import Precision, TrainingArguments


@dataclass(frozen=True)
class FinetuneWork:
    """Train on a job's examples, then score its test part; travels as JSON to the processes."""

    job: str
    model: str
    num_examples: int | None
    """Train on this many examples from the first; None for all."""
    num_train_epochs: int
    learning_rate: float
    train_batch_size: int
    max_seq_length: int
    max_steps: int | None = None
    freeze_layers: int = 0
    """Do not train the embeddings and this many of the lowest layers."""
    precision: Precision = "float32"
    device: str = "cpu"
    attention: str = "sdpa"
    """transformers' attn_implementation."""
    profiled_steps: int = 0
    """The last steps, which run under the profiler and are not timed; ``max_steps`` counts them."""
    seed: int = 1
    threads: int | None = None
    """Threads of each process; None: PyTorch's choice."""
    is_scored: bool = True
    at_defaults: bool = False
    """Our side takes its default head start, batch size and learning rate."""

    @property
    def task(self) -> str:
        """TASK."""
        return JOBS[self.job].task

    def read(self) -> tuple[Any, list[Any], list[Any]]:
        """The task, and the examples to train and to score on."""
        train = list(islice(examples_of(self.job, "train"), self.num_examples))
        test = examples_of(self.job, "dev") if self.is_scored else []
        return task_class(self.task).from_examples(train), train, test

    def arguments(self) -> TrainingArguments:
        """The training arguments of our side."""
        arguments = TrainingArguments(
            num_train_epochs=self.num_train_epochs,
            max_steps=self.max_steps,
            freeze_layers=self.freeze_layers,
            precision=self.precision,
            seed=self.seed,
            # As the other side, however few examples there are.
            pooling="cls" if self.task == "classify" else None,
        )
        if self.at_defaults:
            return arguments
        return replace(
            arguments,
            train_batch_size=self.train_batch_size,
            learning_rate=self.learning_rate,
            # The other side has no other start.
            head_start="random",
        )

    def batches(self, num_examples: int) -> list[list[int]]:
        """The places of each step's examples, in the order of our trainer."""
        found = (
            order[start : start + self.train_batch_size].tolist()
            for epoch in range(self.num_train_epochs)
            for order in [epoch_order(num_examples, self.seed, epoch)]
            for start in range(0, num_examples, self.train_batch_size)
        )
        return list(islice(found, self.max_steps))


def work_of(name: str, model: str, **changes: Any) -> FinetuneWork:
    """The work of a job, as its comparisons do it."""
    job = JOBS[name]
    settings = {
        "num_examples": job.num_examples,
        "num_train_epochs": job.num_train_epochs,
        "learning_rate": job.learning_rate,
        "train_batch_size": job.train_batch_size,
        "max_seq_length": job.max_seq_length,
    }
    return FinetuneWork(name, model, **{**settings, **changes})


@contextmanager
def with_dropout(work: FinetuneWork, rate: float | None) -> Iterator[FinetuneWork]:
    """The work on a copy of its MODEL with this dropout; None leaves the MODEL's own."""
    if rate is None:
        yield work
        return
    origin = find_model(work.model).absolute()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for path in origin.iterdir():
            # tidybert.json has the hash of the configuration that changes here.
            if path.is_file() and path.name not in (CONFIG_FILE, METADATA_FILE):
                (copy / path.name).symlink_to(path)
        names = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout")
        config = json.loads((origin / CONFIG_FILE).read_text()) | dict.fromkeys(names, rate)
        (copy / CONFIG_FILE).write_text(json.dumps(config))
        yield replace(work, model=str(copy))
