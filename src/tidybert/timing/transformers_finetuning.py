"""transformers' side of a fine-tuning: its model, tokenizer, padding collator and Trainer."""

import math
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
import transformers

from tidybert.catalog import find_model
from tidybert.data.features import Features
from tidybert.timing.finetuning_work import FinetuningWork, batches_of, read_work
from tidybert.timing.transformers_trainer import train_in_order

Encode = Callable[[Sequence[Any]], list[dict[str, Any]]]
"""From examples to the items of a data set."""


def run_transformers(work: FinetuningWork) -> dict[str, Any]:
    """Train and score as ``measure`` in finetuning_speed says."""
    transformers.utils.logging.set_verbosity_error()
    task, train, dev = read_work(work)
    transformers.set_seed(work.seed)
    model, encode, collate = (_choices if work.task == "choose" else _texts)(task, work)
    if work.freeze_layers:
        for part in (model.bert.embeddings, *model.bert.encoder.layer[: work.freeze_layers]):
            part.requires_grad_(False)
    trained = train_with_transformers(model, train, encode, collate, work)
    metrics = _score(model, encode(dev), collate, task, dev) if dev else {}
    return {"metrics": metrics, **trained}


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
    batches = list(islice(batches_of(len(train), work), work.max_steps))
    # Examples of no batch would only fill memory.
    used = sorted({index for batch in batches for index in batch})
    place_of = {index: place for place, index in enumerate(used)}
    trained = train_in_order(
        model,
        encode([train[index] for index in used]),
        [[place_of[index] for index in batch] for batch in batches],
        collate,
        precision=work.precision,
        per_device_train_batch_size=work.train_batch_size,
        learning_rate=work.learning_rate,
        warmup_steps=math.floor(len(batches) * 0.1),
        seed=work.seed,
    )
    return {
        **trained,
        "num_steps": len(batches),
        "num_examples": sum(map(len, batches)),
        "step_examples": [len(batch) for batch in batches],
    }


def _texts(task: Any, work: FinetuningWork) -> tuple[Any, Encode, Any]:
    """transformers' model, encoding and collator for texts, as in its run_glue.py."""
    directory = find_model(work.model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    ids = {name: number for number, name in enumerate(task.label_names or ())}

    def encode(examples: Sequence[Any]) -> list[dict[str, Any]]:
        pairs = [one.text_pair for one in examples] if examples[0].text_pair is not None else None
        texts = [one.text for one in examples]
        encoded = tokenizer(texts, pairs, truncation=True, max_length=work.max_seq_length)
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


def _choices(task: Any, work: FinetuningWork) -> tuple[Any, Encode, Any]:
    """transformers' model, encoding and collator for choices, as in its run_swag.py."""
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


def _score(
    model: Any, encoded: list[dict[str, Any]], collate: Any, task: Any, dev: Sequence[Any]
) -> dict[str, Any]:
    """The task's metrics for the answers of transformers' model to the dev examples."""
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
    metrics: dict[str, Any] = task.answers(rows, features, dev).metrics()
    return metrics
