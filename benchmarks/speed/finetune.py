"""Time steps of fine-tuning a classifier, 32 texts each.

The other side is transformers' Trainer with dynamic padding, on the same examples in the same
order.  Each measurement is a process of its own.  With --freeze-layers the second epoch is timed,
for which tidybert has kept the frozen layers' states.  Without the data folder (TIDYBERT_DATA, or
../shared/data) the examples are the bundled tickets, not SST-2.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness import datasets, script, steps
from benchmarks.speed.inference_sides import max_seq_length_for
from tidybert.catalog import find_model
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.data.batching import epoch_order
from tidybert.finetuning.finetuned_model import FinetunedModel
from tidybert.finetuning.finetuning_job import FinetuningJob
from tidybert.finetuning.run_job import run_finetuning
from tidybert.inference.forward import run_features
from tidybert.storage.model_files import CONFIG_FILE, METADATA_FILE
from tidybert.system.reporter import Reporter
from tidybert.tasks.registry import task_class
from tidybert.training.precision import is_mixed
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
        self, reporter: Reporter | None = None, *, out: Path | None = None
    ) -> FinetunedModel[Any]:
        """What tidybert trains; ``out`` is a RUN to write."""
        task, train, _ = self.read()
        given = (task, self.model, train, None, self.arguments())
        more: dict[str, Any] = {"max_seq_length": self.max_seq_length, "device": self.device}
        return run_finetuning(FinetuningJob(*given, out=out, **more), reporter)

    def batches(self, num_examples: int) -> list[list[int]]:
        """The places of each step's examples, in the order of our trainer."""
        found = (
            order[start : start + self.train_batch_size].tolist()
            for epoch in range(self.num_train_epochs)
            for order in [epoch_order(num_examples, self.seed, epoch)]
            for start in range(0, num_examples, self.train_batch_size)
        )
        return list(islice(found, self.max_steps))

    def peak_rate(self) -> float | None:
        """Examples a second at the device's peak; None with frozen layers, which leave work out."""
        device = torch.device(self.device)
        if device.type == "cpu" or self.freeze_layers:
            return None
        task, train, _ = self.read()
        directory = ModelDirectory.open(self.model)
        chosen = [train[index] for batch in self.batches(len(train)) for index in batch]
        features = task.features(chosen, directory.tokenizer, self.max_seq_length)
        lengths = [len(one.input_ids) for one in features]
        mixed = is_mixed(self.precision, device)
        return steps.peak_texts_per_second(directory.config, lengths, device, mixed=mixed)


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


# --- a side in a process of its own


def measure(side: str, given: dict[str, Any]) -> dict[str, Any]:
    """Train and score: what ``time_steps`` takes, "metrics" and "seconds" (of training only)."""
    work = FinetuneWork(**given)
    if side == "ours":
        result = _train_ours(work)
    else:
        from benchmarks.speed.transformers_training import run_finetuning as train_theirs

        result = train_theirs(work)
    return {**result, "peak_rate": work.peak_rate(), "threads": torch.get_num_threads()}


def _train_ours(work: FinetuneWork) -> dict[str, Any]:
    profiled = work.profiled_steps
    num_timed = work.max_steps - profiled if profiled and work.max_steps else None
    clock = steps.StepClock(torch.device(work.device), num_timed, profiled)
    counts: list[int] = []

    def step(done: Any) -> None:
        clock.step_ended()
        counts.append(done.num_examples)

    trained = work.trained(Reporter(step=step))
    _, _, test = work.read()
    metrics = metrics_of(trained, test) if test else {}
    seconds = trained.result.seconds
    return {"metrics": metrics, "seconds": seconds, "step_counts": counts, **clock.found()}


# --- a speed


def bench_finetuning(
    work: FinetuneWork,
    *,
    sides: Sequence[str] = script.SIDES,
    num_steps: int = 40,
    rounds: int = 3,
    dropout: float | None = None,
) -> dict[str, Any]:
    """What ``time_steps`` finds in so many steps of the work after a warm-up; nothing is scored.

    On a GPU more steps are timed if its clocks were stable soon.  With frozen layers it times the
    second epoch, which has as many.
    """
    untimed = steps.UNTIMED_STEPS if work.device == "cpu" else steps.MOST_WARM_UP_STEPS
    if work.freeze_layers:
        # The first epoch computes the states that later epochs reuse.
        untimed = num_steps
        work = replace(work, num_examples=num_steps * work.train_batch_size)
    # An epoch has at least one step, so this many epochs are enough.
    total = num_steps + untimed + work.profiled_steps
    work = replace(work, is_scored=False, num_train_epochs=total, max_steps=total)
    known = untimed if work.freeze_layers else None
    with with_dropout(work, dropout) as given:
        found = steps.time_steps(
            measure, given, "examples", sides=sides, rounds=rounds, untimed=known
        )
    return {**found, "steps": num_steps}


def main(parser: argparse.ArgumentParser) -> None:
    steps.add_training_flags(parser, steps=40, least=1, what="timed steps of 32 texts")
    script.add_flags(parser, "model max-seq-length")
    script.add_number(parser, "freeze-layers", 0, "lowest K layers", least=0)
    given = parser.parse_args()
    script.check_device(given)
    job = datasets.sst2_or_tickets()
    work = work_of(
        job,
        given.model,
        num_examples=None,
        learning_rate=5e-5,
        max_seq_length=max_seq_length_for(given.model, given.max_seq_length),
        freeze_layers=given.freeze_layers,
        **steps.settings_of(given),
    )
    # A wrong argument is reported here, before a process would fail with a traceback.
    work.arguments()
    shown = "bfloat16" if is_mixed(given.precision, torch.device(given.device)) else "float32"
    result = bench_finetuning(
        work,
        sides=script.sides_against(given.against, given.device),
        num_steps=given.steps,
        rounds=given.rounds,
        dropout=given.dropout,
    )
    title = f"Fine-tuning: {given.steps} steps of {work.train_batch_size} texts of {job}"
    steps.print_training(given, f"{title}, {given.model}, {shown}", "examples", result)
