"""TrainingArguments: every knob of a fine-tuning run, beside its default.

The defaults follow appendix A.3 of the paper and run_classifier.py, with Adam's bias correction,
which the original left out and which makes small data sets stable (Mosbach et al. 2020).
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Final, Literal, Self, get_args

from tidybert.training.argument_checks import check_arguments
from tidybert.training.changes import MODEL, NOTHING, STEPS, argument

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
