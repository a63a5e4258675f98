"""The fine-tuning that both sides do: a job's examples, in one order, with one set of arguments."""

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import datasets, script
from tidybert.catalog import find_model
from tidybert.data.batching import epoch_order
from tidybert.finetuning.finetuned_model import FinetunedModel
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.finetuning.run_job import run_finetuning
from tidybert.inference.forward import run_features
from tidybert.storage.model_files import CONFIG_FILE, METADATA_FILE
from tidybert.system.reporter import Reporter
from tidybert.tasks.registry import task_class
from tidybert.tokenization import BertTokenizer
from tidybert.training.training_arguments import Precision, TrainingArguments


@dataclass(frozen=True)
class FinetuneWork(datasets.Settings):
    """Train on a job's examples, then score its test part; travels as JSON to the processes."""

    job: str
    model: str
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
        return datasets.JOBS[self.job].task

    def read(self) -> tuple[Any, list[Any], list[Any]]:
        """The task, and the examples to train and to score on."""
        train = list(islice(datasets.examples_of(self.job, "train"), self.num_examples))
        test = datasets.examples_of(self.job, "dev") if self.is_scored else []
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
        size, rate = self.train_batch_size, self.learning_rate
        # The other side has no other start.
        return replace(arguments, train_batch_size=size, learning_rate=rate, head_start="random")

    def trained(
        self,
        reporter: Reporter | None = None,
        *,
        arguments: TrainingArguments | None = None,
        out: Path | None = None,
    ) -> FinetunedModel[Any]:
        """What tidybert trains; ``out`` is a RUN to write."""
        task, train, _ = self.read()
        job = FinetuningJob(
            task,
            self.model,
            train,
            None,
            arguments or self.arguments(),
            max_seq_length=self.max_seq_length,
            out=out,
            device=self.device,
        )
        return run_finetuning(job, reporter)

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
    settings = {
        each.name: getattr(datasets.JOBS[name], each.name) for each in fields(datasets.Settings)
    }
    return FinetuneWork(name, model, **{**settings, **changes})


def metrics_of(trained: FinetunedModel[Any], examples: Sequence[Any]) -> dict[str, Any]:
    """The metrics of our model, with its last weights, in float32."""
    task = trained.task
    features = task.features(examples, trained.tokenizer, trained.max_seq_length)
    task.add_labels(features, examples)
    outputs = run_features(task, trained.model, features)
    found: dict[str, Any] = task.answers(outputs, features, examples).metrics()
    return found


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


# --- the rows that padded batches add


def padded_rows(model: str) -> Iterator[list[str]]:
    """A row for each task in the language of the model's vocabulary."""
    tokenizer = BertTokenizer.from_pretrained(model)
    for name in (*datasets.GROUPS["glue"], *datasets.GROUPS["text"]):
        if name == "ChnSentiCorp":
            continue
        work = work_of(name, model, is_scored=False)
        task, train, _ = work.read()
        features = task.features(train, tokenizer, work.max_seq_length)
        lengths = np.array([len(one.input_ids) for one in features])
        padded = sum(lengths[batch].max() * len(batch) for batch in work.batches(len(lengths)))
        cells = padded / (lengths.sum() * work.num_train_epochs)
        yield [name, f"{len(lengths):,}", f"{lengths.mean():.1f}", f"{cells:.2f}"]


def padding(parser: argparse.ArgumentParser) -> None:
    """Count the padded cells of padded batches: what rows without padding save.

        python -m benchmarks padding --write benchmarks/NOTES.md

    Batches are those of compare glue and compare text: texts cut at 128 tokens, 32 a batch in the
    first seed's order, padded to the longest of the batch.
    """
    script.add_flags(parser, "model write")
    given = parser.parse_args()
    heads = ["task", "examples", "tokens an example", "padded cells a token"]
    script.show(script.markdown(heads, padded_rows(given.model)), given.write, "padding")
