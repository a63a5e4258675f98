"""Fine-tuning timed: tidybert and transformers on the same examples, order, steps and arguments.

transformers runs as its users run it: its Trainer, its tokenizer, and a collator that pads each
batch to its longest text.  Every measurement is a process of its own, so that its peak memory is
its own and neither side warms the other's caches::

    python -m tidybert.benchmark.finetuning ours '{"task": "classify", …}'
"""

import json
import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from tidybert.data.options import ReadOptions
from tidybert.errors import TidyBertError

SIDES: Final = ("ours", "transformers")


@dataclass(frozen=True)
class FinetuningWork:
    """What both sides do: train on a file's examples, then score another's."""

    task: str
    """classify or regress."""
    model: str
    train: str
    dev: str
    options: ReadOptions
    num_examples: int | None = None
    """Only the first so many training examples; None for all."""
    max_seq_length: int = 128
    train_batch_size: int = 32
    learning_rate: float = 5e-5
    num_train_epochs: int = 1
    max_steps: int | None = None
    seed: int = 1
    threads: int | None = None
    """Of each process; None: PyTorch's choice."""


def measure(side: str, work: FinetuningWork) -> dict[str, Any]:
    """Run one side in a process of its own.

    Returns {"metrics", "seconds" (of training alone), "num_steps", "num_examples",
    "examples_per_second", "peak_mib"}.
    """
    # A thread that spins while it waits takes the core from the one it waits for.
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive", "TOKENIZERS_PARALLELISM": "false"}
    if work.threads is not None:
        environment["OMP_NUM_THREADS"] = str(work.threads)
    command = [
        sys.executable,
        "-m",
        "tidybert.benchmark.finetuning",
        side,
        json.dumps(asdict(work)),
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TidyBertError(f"the {side} side failed:\n{done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _run(side: str, work: FinetuningWork) -> dict[str, Any]:
    result = _run_ours(work) if side == "ours" else _run_transformers(work)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    seconds = result["seconds"]
    return {
        **result,
        "examples_per_second": result["num_examples"] / seconds,
        "peak_mib": round(peak),
    }


def _read(work: FinetuningWork) -> tuple[list[Any], list[Any]]:
    from tidybert.data.readers import read_examples

    scores = work.task == "regress"
    train = list(read_examples(work.train, work.options, need_label=True, scores=scores))
    dev = list(read_examples(work.dev, work.options, need_label=True, scores=scores))
    return train[: work.num_examples], dev


def _task(work: FinetuningWork, train: Sequence[Any]) -> Any:
    from tidybert.data.examples import label_names
    from tidybert.tasks import Classification, Regression

    return Regression() if work.task == "regress" else Classification(label_names(train))


def _run_ours(work: FinetuningWork) -> dict[str, Any]:
    from tidybert.finetuning import finetune
    from tidybert.inference.running import run_features
    from tidybert.training.arguments import TrainingArguments

    train, dev = _read(work)
    task = _task(work, train)
    arguments = TrainingArguments(
        num_train_epochs=work.num_train_epochs,
        max_steps=work.max_steps,
        train_batch_size=work.train_batch_size,
        learning_rate=work.learning_rate,
        seed=work.seed,
    )
    trained = finetune(
        task, work.model, train, None, arguments, max_seq_length=work.max_seq_length, device="cpu"
    )
    features = task.features(dev, trained.tokenizer, work.max_seq_length)
    task.add_labels(features, dev)
    metrics = task.metrics(run_features(task, trained.model, features), features)
    return {
        "metrics": metrics,
        "seconds": trained.result.seconds,
        "num_steps": trained.result.num_steps,
        "num_examples": trained.result.num_examples,
    }


def _run_transformers(work: FinetuningWork) -> dict[str, Any]:
    import tempfile

    import numpy as np
    import torch
    import transformers

    from tidybert.data.batching import epoch_order
    from tidybert.data.features import Features
    from tidybert.pretrained import model_directory

    transformers.utils.logging.set_verbosity_error()
    train, dev = _read(work)
    task = _task(work, train)
    directory = model_directory(work.model)
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

    transformers.set_seed(work.seed)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        directory,
        num_labels=len(ids) or 1,
        problem_type=task.problem_type,
    )
    collate = transformers.DataCollatorWithPadding(tokenizer)
    dataset = encode(train)
    size = work.train_batch_size
    batches = []
    for epoch in range(work.num_train_epochs):
        order = epoch_order(len(dataset), work.seed, epoch).tolist()
        batches += [order[start : start + size] for start in range(0, len(order), size)]
    batches = batches[: work.max_steps]

    class OrderedTrainer(transformers.Trainer):  # type: ignore[misc]
        """Takes the batches that our side takes, in their order."""

        def get_train_dataloader(self) -> Any:
            return torch.utils.data.DataLoader(
                self.train_dataset, batch_sampler=batches, collate_fn=self.data_collator
            )

    with tempfile.TemporaryDirectory() as folder:
        trainer = OrderedTrainer(
            model=model,
            args=transformers.TrainingArguments(
                output_dir=folder,
                max_steps=len(batches),
                per_device_train_batch_size=size,
                learning_rate=work.learning_rate,
                warmup_steps=math.floor(len(batches) * 0.1),
                weight_decay=0.01,
                adam_epsilon=1e-6,
                seed=work.seed,
                use_cpu=True,
                report_to="none",
                save_strategy="no",
                logging_steps=10,
                disable_tqdm=True,
                dataloader_pin_memory=False,
            ),
            train_dataset=dataset,
            data_collator=collate,
        )
        begin = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - begin
    model.eval()
    logits = []
    encoded_dev = encode(dev)
    with torch.inference_mode():
        for start in range(0, len(encoded_dev), 32):
            batch = collate(encoded_dev[start : start + 32])
            batch.pop("labels")
            logits.append(model(**batch).logits.numpy())
    outputs = np.concatenate(logits)
    features = [Features(np.zeros(0, dtype=np.int32), 0, 0) for _ in dev]
    task.add_labels(features, dev)
    return {
        "metrics": task.metrics(outputs if ids else outputs[:, 0], features),
        "seconds": seconds,
        "num_steps": len(batches),
        "num_examples": sum(map(len, batches)),
    }


if __name__ == "__main__":
    given = json.loads(sys.argv[2])
    given["options"] = ReadOptions(**given["options"])
    with open(os.dup(1), "w") as answer:  # noqa: PTH123
        # What transformers prints to stdout must not stand in the answer's way.
        os.dup2(2, 1)
        print(json.dumps(_run(sys.argv[1], FinetuningWork(**given))), file=answer)
