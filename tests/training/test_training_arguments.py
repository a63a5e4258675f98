"""TrainingArguments: the defaults of the paper, and what is refused, by its flag."""

import json
from dataclasses import asdict
from typing import Any

import pytest

from tidybert.errors import UsageError
from tidybert.pretraining.pretraining_arguments import PretrainingArguments
from tidybert.training.training_arguments import TrainingArguments


def test_the_defaults_are_those_of_the_paper() -> None:
    arguments = TrainingArguments()

    assert arguments.batch_size == 32
    assert arguments.epochs == 3.0
    assert arguments.warmup_proportion == 0.1
    assert arguments.weight_decay == 0.01
    assert (arguments.adam_beta1, arguments.adam_beta2, arguments.adam_epsilon) == (
        0.9,
        0.999,
        1e-6,
    )
    assert arguments.max_grad_norm == 1.0


def test_they_survive_json() -> None:
    arguments = TrainingArguments(learning_rate=3e-5, max_steps=7, freeze_embeddings=True)

    assert TrainingArguments(**json.loads(json.dumps(asdict(arguments)))) == arguments


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_train_epochs", -1),
        ("num_train_epochs", float("inf")),
        ("num_train_epochs", True),
        ("max_steps", 0),
        ("max_steps", 2.5),
        ("train_batch_size", -1),
        ("train_batch_size", "32"),
        ("tokens_per_batch", 0),
        ("tokens_per_batch", None),
        ("learning_rate", float("nan")),
        ("learning_rate", -1e-5),
        ("warmup_proportion", 1.0),
        ("warmup_proportion", -0.1),
        ("weight_decay", -0.01),
        ("adam_beta1", 1.0),
        ("adam_beta2", -0.5),
        ("adam_epsilon", 0.0),
        ("max_grad_norm", 0),
        ("seed", -1),
        ("eval_steps", 0),
        ("save_steps", 0.5),
        ("save_total_limit", 0),
        ("early_stopping_patience", 0),
        ("freeze_layers", -1),
        ("freeze_layers", True),
        ("freeze_embeddings", 1),
        ("precision", "float16"),
        ("precision", None),
        ("logging_steps", 0),
    ],
)
def test_a_value_that_cannot_be_is_named_by_its_flag(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"^{name} is .*expected "):
        TrainingArguments(**{name: value})


@pytest.mark.parametrize("kind", [TrainingArguments, PretrainingArguments])
def test_a_seed_has_64_bits(kind: type) -> None:
    assert kind(seed=2**64 - 1).seed == 2**64 - 1
    for seed in (-1, 2**64):
        with pytest.raises(UsageError, match=f"^seed is {seed}; expected a whole number from 0"):
            kind(seed=seed)


def test_whole_numbers_serve_as_numbers() -> None:
    assert TrainingArguments(num_train_epochs=2, learning_rate=1).num_train_epochs == 2
