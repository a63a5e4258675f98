"""Fine-tuning timed: tidybert and transformers on the same examples, order, steps and arguments.

transformers runs as its users run it: its Trainer, its tokenizer, and a collator that pads each
batch to its longest text.  Every measurement is a process of its own, so that its peak memory is
its own and neither side warms the other's caches::

    python -m tidybert.timing.finetuning_speed ours '{"task": "classify", …}'
"""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Final

from tidybert.files.read_options import ReadOptions
from tidybert.timing.own_process import answer, run_apart
from tidybert.timing.setting import SIDES, in_turn, summarize

if TYPE_CHECKING:
    from tidybert.training.training_arguments import TrainingArguments

__all__ = [
    "SIDES",
    "FinetuningWork",
    "arguments_of",
    "bench_finetuning",
    "measure",
    "train_with_transformers",
]

UNTIMED_STEPS: Final = 3
"""The first steps of a measurement, in which libraries choose their kernels and memory is fetched.
"""


@dataclass(frozen=True)
class FinetuningWork:
    """What both sides do: train on a file's examples, then score another's."""

    task: str
    """classify, regress or choose."""
    model: str
    train: str
    dev: str | None
    """None: do not score."""
    options: ReadOptions
    num_examples: int | None = None
    """Only the first so many training examples; None for all."""
    max_seq_length: int = 128
    train_batch_size: int = 32
    learning_rate: float = 5e-5
    num_train_epochs: int = 1
    max_steps: int | None = None
    freeze_layers: int = 0
    """The lowest so many layers, and the embeddings, stay as they are."""
    precision: str = "auto"
    """Of both sides, as finetune has it."""
    seed: int = 1
    threads: int | None = None
    """Of each process; None: PyTorch's choice."""


def measure(side: str, work: FinetuningWork) -> dict[str, Any]:
    """Run one side in a process of its own.

    Returns {"metrics", "seconds" (of training alone), "num_steps", "num_examples",
    "examples_per_second", "step_seconds" (from the end of one step to that of the next, so one
    fewer than steps), "step_examples" (of all steps), "threads", "peak_mib"}.
    """
    result: dict[str, Any] = run_apart(
        "tidybert.timing.finetuning_speed", side, asdict(work), work.threads
    )
    return result


def bench_finetuning(
    work: FinetuningWork,
    *,
    sides: Sequence[str] = SIDES,
    steps: int = 40,
    rounds: int = 3,
    report: Callable[[str], None] = lambda _line: None,
) -> dict[str, Any]:
    """Time so many steps of the work, after UNTIMED_STEPS; a round measures every side once.

    With frozen layers it is the second epoch of so many steps that is timed.

    ``samples``, ``medians`` and ``ratios`` are as ``summarize`` gives them, of the quantities
    examples_per_second, seconds_per_step and peak_mib.  Nothing is scored.
    """
    untimed = UNTIMED_STEPS
    if work.freeze_layers:
        # The first epoch fills what the later ones are spared.
        untimed, work = steps, replace(work, num_examples=steps * work.train_batch_size)
    num_steps = steps + untimed
    # However few the examples, so many epochs have steps enough.
    work = replace(work, dev=None, num_train_epochs=num_steps, max_steps=num_steps)
    samples: dict[str, dict[str, list[float]]] = {side: {} for side in sides}
    all_seconds: dict[str, list[list[float]]] = {side: [] for side in sides}
    threads = None
    for number in range(rounds):
        for side in in_turn(sides, number):
            measured = measure(side, work)
            threads = measured["threads"]
            step_seconds = measured["step_seconds"][-steps:]
            seconds, examples = sum(step_seconds), sum(measured["step_examples"][-steps:])
            values = {
                "examples_per_second": examples / seconds,
                "seconds_per_step": seconds / steps,
                "peak_mib": measured["peak_mib"],
            }
            for name, value in values.items():
                samples[side].setdefault(name, []).append(value)
            all_seconds[side].append(step_seconds)
            report(f"round {number + 1} of {rounds}: {side} {examples / seconds:.1f} examples/s")
    return {
        "work": asdict(work),
        "steps": steps,
        "untimed_steps": untimed,
        "rounds": rounds,
        "threads": threads,
        "step_seconds": all_seconds,
        **summarize(samples),
    }


def _run(side: str, given: dict[str, Any]) -> dict[str, Any]:
    import torch

    work = FinetuningWork(**{**given, "options": ReadOptions(**given["options"])})
    result = _run_ours(work) if side == "ours" else _run_transformers(work)
    return {
        **result,
        "examples_per_second": result["num_examples"] / result["seconds"],
        "threads": torch.get_num_threads(),
    }


def read_work(work: FinetuningWork) -> tuple[Any, list[Any], list[Any]]:
    """The task, and the examples to train and to score on."""
    from tidybert.tasks.registry import task_class
    from tidybert.tasks.task_options import TaskOptions

    chosen = task_class(work.task)
    train = list(islice(chosen.read(work.train, work.options, need_label=True), work.num_examples))
    task = chosen.from_examples(train, TaskOptions())
    dev = list(task.read(work.dev, work.options, need_label=True)) if work.dev else []
    return task, train, dev


def arguments_of(work: FinetuningWork) -> "TrainingArguments":
    """How our side trains in a measurement."""
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


def _run_ours(work: FinetuningWork) -> dict[str, Any]:
    from tidybert.finetuning import Callbacks, finetune
    from tidybert.inference.forward import run_features
    from tidybert.training.trainer import StepReport

    task, train, dev = read_work(work)
    ends: list[float] = []
    step_examples: list[int] = []

    def step(done: StepReport) -> None:
        ends.append(time.perf_counter())
        step_examples.append(done.num_examples)

    trained = finetune(
        task,
        work.model,
        train,
        None,
        arguments_of(work),
        max_seq_length=work.max_seq_length,
        device="cpu",
        callbacks=Callbacks(step=step),
    )
    metrics = {}
    if dev:
        features = task.features(dev, trained.tokenizer, work.max_seq_length)
        task.add_labels(features, dev)
        metrics = task.metrics(run_features(task, trained.model, features), features, dev)
    return {
        "metrics": metrics,
        "seconds": trained.result.seconds,
        "num_steps": trained.result.num_steps,
        "num_examples": trained.result.num_examples,
        "step_seconds": _differences(ends),
        "step_examples": step_examples,
    }


def _run_transformers(work: FinetuningWork) -> dict[str, Any]:
    import transformers

    transformers.utils.logging.set_verbosity_error()
    task, train, dev = read_work(work)
    transformers.set_seed(work.seed)
    model, encode, collate = (_choices if work.task == "choose" else _texts)(task, work)
    if work.freeze_layers:
        for part in (model.bert.embeddings, *model.bert.encoder.layer[: work.freeze_layers]):
            part.requires_grad_(False)
    trained = train_with_transformers(model, train, encode, collate, work)
    metrics = _score_transformers(model, encode(dev), collate, task, dev) if dev else {}
    return {"metrics": metrics, **trained}


def _texts(task: Any, work: FinetuningWork) -> tuple[Any, Any, Any]:
    """transformers' model, encoding and collator for texts, as its run_glue.py has them."""
    import transformers

    from tidybert.catalog import find_model

    directory = find_model(work.model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    ids = {name: number for number, name in enumerate(task.label_names or ())}

    def encode(examples: Sequence[Any]) -> list[dict[str, Any]]:
        pairs = [one.text_pair for one in examples] if examples[0].text_pair is not None else None
        encoded = tokenizer(
            [one.text for one in examples],
            pairs,
            truncation=True,
            max_length=work.max_seq_length,
        )
        labels = [ids[one.label] if ids else float(one.label) for one in examples]
        return [
            {**{key: encoded[key][number] for key in encoded}, "labels": label}
            for number, label in enumerate(labels)
        ]

    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        directory,
        num_labels=len(ids) or 1,
        problem_type=task.problem_type,
    )
    return model, encode, transformers.DataCollatorWithPadding(tokenizer)


def _choices(task: Any, work: FinetuningWork) -> tuple[Any, Any, Any]:
    """transformers' model, encoding and collator for choices, as its run_swag.py has them."""
    import transformers

    from tidybert.catalog import find_model

    directory = find_model(work.model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)

    def encode(examples: Sequence[Any]) -> list[dict[str, Any]]:
        encoded = []
        for one in examples:
            contexts = [one.context] * len(one.choices)
            pairs = tokenizer(
                contexts, one.continued(), truncation=True, max_length=work.max_seq_length
            )
            encoded.append({**pairs, "labels": one.label})
        return encoded

    model = transformers.AutoModelForMultipleChoice.from_pretrained(directory)
    return model, encode, transformers.DataCollatorForMultipleChoice(tokenizer)


def train_with_transformers(
    model: Any,
    train: Sequence[Any],
    encode: Callable[[Sequence[Any]], Any],
    collate: Callable[[Any], Any],
    work: FinetuningWork,
) -> dict[str, Any]:
    """Train transformers' model in place with its Trainer, on our batches in our order.

    ``encode`` makes a data set of examples and ``collate`` a batch of its items.  Returns
    {"seconds", "num_steps", "num_examples", "step_seconds", "step_examples"} as ``measure`` does.
    """
    import tempfile

    import torch
    import transformers

    from tidybert.training.precision import is_mixed

    batches = list(islice(batches_of(len(train), work), work.max_steps))
    # What no batch asks for would only fill memory.
    used = sorted({index for batch in batches for index in batch})
    place_of = {index: place for place, index in enumerate(used)}
    dataset = encode([train[index] for index in used])
    places = [[place_of[index] for index in batch] for batch in batches]
    ends: list[float] = []

    class OrderedTrainer(transformers.Trainer):  # type: ignore[misc]
        """Takes the batches that our side takes, in their order."""

        def get_train_dataloader(self) -> Any:
            return torch.utils.data.DataLoader(
                self.train_dataset, batch_sampler=places, collate_fn=self.data_collator
            )

    class Clock(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_args: Any, **_states: Any) -> None:
            ends.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        trainer = OrderedTrainer(
            model=model,
            args=transformers.TrainingArguments(
                output_dir=folder,
                max_steps=len(batches),
                per_device_train_batch_size=work.train_batch_size,
                learning_rate=work.learning_rate,
                warmup_steps=math.floor(len(batches) * 0.1),
                weight_decay=0.01,
                adam_epsilon=1e-6,
                seed=work.seed,
                use_cpu=True,
                bf16=is_mixed(work.precision, torch.device("cpu")),
                report_to="none",
                save_strategy="no",
                logging_steps=10,
                disable_tqdm=True,
                dataloader_pin_memory=False,
            ),
            train_dataset=dataset,
            data_collator=collate,
            callbacks=[Clock()],
        )
        begin = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - begin
        # Else the model would score in the precision that it was trained in, unlike ours.
        trainer.accelerator.unwrap_model(model, keep_fp32_wrapper=False)
    return {
        "seconds": seconds,
        "num_steps": len(batches),
        "num_examples": sum(map(len, batches)),
        "step_seconds": _differences(ends),
        "step_examples": [len(batch) for batch in batches],
    }


def _score_transformers(
    model: Any, encoded: list[dict[str, Any]], collate: Any, task: Any, dev: Sequence[Any]
) -> dict[str, Any]:
    """The task's metrics of what transformers' model says of the dev examples."""
    import numpy as np
    import torch

    from tidybert.data.features import Features

    model.eval()
    logits = []
    with torch.inference_mode():
        for start in range(0, len(encoded), 32):
            batch = collate(encoded[start : start + 32])
            batch.pop("labels")
            logits.append(model(**batch).logits.numpy())
    outputs = np.concatenate(logits)
    nothing = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.uint8)
    features = [Features(*nothing, num_tokens=0, example=number) for number in range(len(dev))]
    task.add_labels(features, dev)
    rows = list(outputs if task.unit == "sequence" else outputs[:, None])
    metrics: dict[str, Any] = task.metrics(rows, features, dev)
    return metrics


def batches_of(num_examples: int, work: FinetuningWork) -> Iterable[list[int]]:
    """The batches that our trainer takes, in its order."""
    from tidybert.data.batching import epoch_order

    for epoch in range(work.num_train_epochs):
        order = epoch_order(num_examples, work.seed, epoch)
        for start in range(0, num_examples, work.train_batch_size):
            yield order[start : start + work.train_batch_size].tolist()


def _differences(times: Sequence[float]) -> list[float]:
    return [after - before for before, after in pairwise(times)]


if __name__ == "__main__":
    answer(_run)
