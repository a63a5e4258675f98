"""TrainingArguments: every knob of a fine-tuning run, beside its default.

The defaults follow appendix A.3 of the paper and run_classifier.py, with Adam's bias correction,
which the original left out and which makes small data sets stable (Mosbach et al. 2020).
"""

import math
from dataclasses import asdict, dataclass, fields
from typing import Any, get_args

from tidybert.errors import UsageError, param


@dataclass(frozen=True)
class TrainingArguments:
    """Arguments of a training run; the same names as flags, here and in arguments.json."""

    num_train_epochs: float = 3.0
    """Passes over the training data; a part of one is allowed."""
    max_steps: int | None = None
    """At most so many steps, however many num_train_epochs makes."""
    train_batch_size: int = 32
    """Examples a step, that is, an update of the weights."""
    tokens_per_batch: int = 4096
    """A step's examples run in parts of at most so many tokens, gradients summed: bounds memory."""
    learning_rate: float = 5e-5
    """Peak of the schedule."""
    warmup_proportion: float = 0.1
    """Share of the steps over which the rate rises from 0; it then falls linearly to 0."""
    weight_decay: float = 0.01
    """Decoupled decay, on weight matrices and embeddings; never on biases and LayerNorm."""
    adam_beta1: float = 0.9
    """AdamW's decay of the mean gradient."""
    adam_beta2: float = 0.999
    """AdamW's decay of the mean squared gradient."""
    adam_epsilon: float = 1e-6
    """AdamW's guard against division by zero."""
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this norm."""
    seed: int = 42
    """Of the head's initial weights, the order of the examples, and dropout."""
    eval_steps: int | None = None
    """Evaluate on dev every so many steps; at the end of each epoch where not given."""
    save_steps: int | None = None
    """Write a checkpoint every so many steps; at the end of each epoch where not given."""
    save_total_limit: int = 1
    """How many of the last checkpoints are kept; the best weights are kept besides."""
    early_stopping_patience: int | None = None
    """Stop after so many evaluations without a better one; never where not given."""
    freeze_layers: int = 0
    """The lowest so many layers, and the embeddings with them, stay as they are."""
    freeze_embeddings: bool = False
    """The embeddings stay as they are."""
    precision: str = "auto"
    """``float32``, or ``bfloat16`` (autocast); ``auto``: bfloat16 on CUDA, float32 elsewhere."""
    logging_steps: int = 10
    """Write a line of metrics.jsonl every so many steps."""

    def __post_init__(self) -> None:
        """Raises UsageError for a value of another type or out of range, naming its flag."""
        for item in fields(self):
            check_type(item.name, getattr(self, item.name), get_args(item.type) or (item.type,))
        positive = (
            "num_train_epochs", "max_steps", "train_batch_size", "tokens_per_batch",
            "learning_rate", "adam_epsilon", "max_grad_norm", "eval_steps", "save_steps",
            "early_stopping_patience", "logging_steps",
        )  # fmt: skip
        for name in positive:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise bad_value(name, value, "a number above 0")
        check_seed(self.seed)
        for name in ("weight_decay", "freeze_layers", "save_total_limit"):
            if not getattr(self, name) >= 0:
                raise bad_value(name, getattr(self, name), "a number of at least 0")
        for name in ("warmup_proportion", "adam_beta1", "adam_beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise bad_value(name, getattr(self, name), "a number from 0 to below 1")
        if self.precision not in ("auto", "float32", "bfloat16"):
            raise bad_value("precision", self.precision, "auto, float32 or bfloat16")

    def to_dict(self) -> dict[str, Any]:
        """As arguments.json holds them."""
        return asdict(self)


def check_type(name: str, value: object, types: tuple[Any, ...]) -> None:
    """Raise UsageError where a flag's value is of none of the types, or not finite."""
    # To Python true is an int, and no number of steps.
    if isinstance(value, bool):
        fits = bool in types
    else:
        fits = isinstance(value, (*types, int) if float in types else types)
    if not fits:
        words = {int: "a whole number", float: "a number", bool: "true or false", str: "a name"}
        raise bad_value(name, repr(value), " or ".join(words.get(each, "none") for each in types))
    if isinstance(value, float) and not math.isfinite(value):
        raise bad_value(name, value, "a finite number")


def check_seed(seed: int) -> None:
    """Raise UsageError where a seed is none that PyTorch's generators take."""
    if not 0 <= seed < 2**64:
        raise bad_value("seed", seed, "a whole number from 0 to 2**64 - 1")


def bad_value(name: str, value: object, expected: str) -> UsageError:
    """The error of a flag's value that cannot be used."""
    return UsageError(f"{param(name)} is {value}; expected {expected}")
