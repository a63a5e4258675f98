"""TrainingArguments: every knob of a fine-tuning run, beside its default.

The defaults follow appendix A.3 of the paper and run_classifier.py, with Adam's bias correction,
which the original left out and which makes small data sets stable (Mosbach et al. 2020).
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Flag, auto
from typing import Any, ClassVar, Final, Literal, Self, get_args

from tidybert.errors import UsageError, param

# Checks of a run's arguments: each error names the argument, its value and what is expected.


def check_arguments(
    arguments: Any,
    *,
    above_0: Collection[str] = (),
    at_least_0: Collection[str] = (),
    below_1: Collection[str] = (),
    shares: Collection[str] = (),
    choices: Mapping[str, Sequence[str]] = {},
) -> None:
    """Raise UsageError for a field of another type, or out of the range that its group has.

    None is allowed where the field's type allows it.
    """
    for item in fields(arguments):
        check_type(item.name, getattr(arguments, item.name), item.type)
    check_seed(getattr(arguments, "seed", 0))
    ranges: list[tuple[Collection[str], Callable[[float], bool], str]] = [
        (above_0, lambda value: value > 0, "a number above 0"),
        (at_least_0, lambda value: value >= 0, "a number of at least 0"),
        (below_1, lambda value: 0 <= value < 1, "a number from 0 to below 1"),
        (shares, lambda value: 0 <= value <= 1, "a fraction from 0 to 1"),
    ]
    for names, is_good, expected in ranges:
        for name in names:
            value = getattr(arguments, name)
            if value is not None and not is_good(value):
                raise bad_value(name, value, expected)
    for name, allowed in choices.items():
        value = getattr(arguments, name)
        if value is not None and value not in allowed:
            raise bad_value(name, value, one_of(allowed))


def check_seed(seed: int) -> None:
    """Raise UsageError for a seed that PyTorch's generators do not take."""
    if not 0 <= seed < 2**64:
        raise bad_value("seed", seed, "a whole number from 0 to 2**64 - 1")


def bad_value(name: str, value: object, expected: str) -> UsageError:
    """The error of an argument whose value cannot be used."""
    return UsageError(f"{param(name)} is {value}; expected {expected}")


def one_of(names: Sequence[str]) -> str:
    """Names as a message lists them: auto, float32 or bfloat16."""
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def check_type(name: str, value: object, kind: Any) -> None:
    """Raise UsageError for a value of another type than ``kind``, a type or a union of types."""
    types = get_args(kind) or (kind,)
    # To Python, True is an int; here it is not a number of steps.
    if isinstance(value, bool):
        fits = bool in types
    else:
        fits = isinstance(value, (*types, int) if float in types else types)
    if not fits:
        words = {int: "a whole number", float: "a number", bool: "true or false", str: "a name"}
        raise bad_value(name, repr(value), " or ".join(words.get(each, "none") for each in types))
    if isinstance(value, float) and not math.isfinite(value):
        raise bad_value(name, value, "a finite number")


# What another value of an argument changes in a run under way, declared beside its default.
#
#     learning_rate: float | None = argument(STEPS, None)
#
# NOTHING may change whenever a run resumes; STEPS, ORDER and MEASURE change from there on, where
# ``--change`` allows it; MODEL cannot change.

_KEY: Final = "changes"


class Changes(Flag):
    """What another value changes.

    NOTHING: no arithmetic, but for rounding and the draws of dropout.  STEPS: the steps from there
    on.  ORDER: the instances that come next, so a new order of the documents begins.  MEASURE: what
    is measured, so that the best weights are chosen again.  MODEL: what the run trains.
    """

    NOTHING = 0
    STEPS = auto()
    ORDER = auto()
    MEASURE = auto()
    MODEL = auto()


NOTHING: Final = Changes.NOTHING
STEPS: Final = Changes.STEPS
ORDER: Final = Changes.ORDER
MEASURE: Final = Changes.MEASURE
MODEL: Final = Changes.MODEL


def argument(what: Changes, default: Any) -> Any:
    """The field of an argument, with what another value changes."""
    return field(default=default, metadata={_KEY: what})


def changes_of(*groups: Any) -> dict[str, Changes]:
    """By name, what each argument of some dataclasses changes; MODEL where none says it."""
    return {each.name: each.metadata.get(_KEY, MODEL) for group in groups for each in fields(group)}


SMALL_WIDTH: Final = 512
"""Encoders that are narrower take a higher learning rate than the paper's."""
DEFAULT_EPOCHS: Final = 3.0
DEFAULT_BATCH_SIZE: Final = 32
HeadStart = Literal["probe", "contrastive", "random"]
HeadPooling = Literal["cls", "mean"]
Precision = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True)
class TrainingArguments:
    """Arguments of a training run; the same names as flags, here and in arguments.json."""

    PANEL: ClassVar = "Training"
    PANELS: ClassVar = {
        "Checkpoints": ("eval_steps", "save_steps", "save_total_limit", "logging_steps"),
        "Device": ("precision", "tokens_per_batch", "deterministic"),
    }

    num_train_epochs: float | None = argument(STEPS, None)
    """Passes over the training data; 0 trains nothing after --head-start. If not set: 3, or by the
    number of labels."""
    max_steps: int | None = argument(STEPS, None)
    """Stop after this many steps, even before --num-train-epochs."""
    train_batch_size: int | None = argument(MODEL, None)
    """Examples in each update of the weights. If not set: 32, or 8 for up to 3,000 pairs, scores,
    choices, tags or questions."""
    tokens_per_batch: int = argument(NOTHING, 4096)
    """Split a step into parts of at most this many tokens and sum their gradients, to bound
    memory."""
    learning_rate: float | None = argument(STEPS, None)
    """Highest learning rate. If not set: 5e-5 for widths of 512 and more; below 1e-4, and 3e-4 to
    tag or answer."""
    warmup_proportion: float = argument(STEPS, 0.1)
    """Fraction of the steps over which the learning rate rises from 0; it then falls linearly to
    0."""
    head_start: str | None = argument(MODEL, None)
    """Begin a new head as a fit to the encoder (probe), after contrastive training (contrastive),
    or random. If not set: by the labels."""
    pooling: str | None = argument(MODEL, None)
    """Read [CLS] (cls) or the mean of all tokens (mean), which transformers cannot open. If not
    set: as MODEL, or by the labels."""
    dropout: float | None = argument(STEPS, None)
    """Dropout in the encoder and before the head, 0 or above and below 1. If not set: as MODEL."""
    weight_decay: float = argument(STEPS, 0.01)
    """Decoupled weight decay, on weight matrices and embeddings but not on biases and LayerNorm."""
    adam_beta1: float = argument(STEPS, 0.9)
    """AdamW's decay rate of the mean gradient."""
    adam_beta2: float = argument(STEPS, 0.999)
    """AdamW's decay rate of the mean squared gradient."""
    adam_epsilon: float = argument(STEPS, 1e-6)
    """AdamW's guard against division by zero."""
    max_grad_norm: float = argument(STEPS, 1.0)
    """Scale gradients down to at most this norm."""
    seed: int = argument(MODEL, 42)
    """Random seed for head weights, example order and dropout."""
    eval_steps: int | None = argument(NOTHING, None)
    """Evaluate on dev after every N steps. If not set: at the end of each epoch."""
    save_steps: int | None = argument(NOTHING, None)
    """Write a checkpoint after every N steps. If not set: at the end of each epoch."""
    save_total_limit: int = argument(NOTHING, 1)
    """Checkpoints to keep, besides the best weights."""
    early_stopping_patience: int | None = argument(STEPS, None)
    """Stop after this many evaluations without a better one. If not set: never."""
    freeze_layers: int = argument(MODEL, 0)
    """Do not train the embeddings and this many of the lowest layers."""
    freeze_embeddings: bool = argument(MODEL, False)
    """Do not train the embeddings."""
    precision: str = argument(STEPS, "auto")
    """Compute in float32 or bfloat16 (autocast); auto is bfloat16 on CUDA and float32 elsewhere."""
    deterministic: bool = argument(NOTHING, False)
    """On CUDA, repeat to the bit with the same seed and machine, by slower kernels; without it, to
    rounding. A CPU always repeats."""
    logging_steps: int = argument(NOTHING, 10)
    """Write a line of metrics.jsonl after every N steps."""

    @property
    def epochs(self) -> float:
        """``num_train_epochs``, or 3 where it is not set."""
        return DEFAULT_EPOCHS if self.num_train_epochs is None else self.num_train_epochs

    @property
    def batch_size(self) -> int:
        """``train_batch_size``, or 32 where it is not set."""
        return DEFAULT_BATCH_SIZE if self.train_batch_size is None else self.train_batch_size

    @property
    def peak_rate(self) -> float:
        """``learning_rate`` once it is known."""
        assert self.learning_rate is not None, "for_width has not chosen the rate"
        return self.learning_rate

    def for_width(self, hidden_size: int, *, of_tokens: bool = False) -> Self:
        """The same with the rate for encoders of this width, where no rate is given.

        ``of_tokens``: the head reads every token, as those that tag and answer do.
        """
        if self.learning_rate is not None:
            return self
        small = 3e-4 if of_tokens else 1e-4
        return replace(self, learning_rate=5e-5 if hidden_size >= SMALL_WIDTH else small)

    def __post_init__(self) -> None:
        """Raises UsageError for a value of another type or out of range, naming its flag."""
        check_arguments(
            self,
            above_0=(
                "max_steps", "train_batch_size", "tokens_per_batch",
                "learning_rate", "adam_epsilon", "max_grad_norm", "eval_steps", "save_steps",
                "early_stopping_patience", "logging_steps", "save_total_limit",
            ),
            at_least_0=("num_train_epochs", "weight_decay", "freeze_layers"),
            below_1=("warmup_proportion", "adam_beta1", "adam_beta2", "dropout"),
            choices={
                "precision": get_args(Precision),
                "head_start": get_args(HeadStart),
                "pooling": get_args(HeadPooling),
            },
        )  # fmt: skip
