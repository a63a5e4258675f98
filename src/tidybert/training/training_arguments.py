"""RunOptions, what every training is told, and TrainingArguments: every knob of a fine-tuning.

The defaults follow appendix A.3 of the paper and run_classifier.py, with Adam's bias correction,
which the original left out and which makes small data sets stable (Mosbach et al. 2020).
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Final, Literal, Self

from tidybert.options import MODEL, NOTHING, SEED, STEPS, Options, option

# What a training is told beside its data and its arguments, one field a flag.


@dataclass(frozen=True, kw_only=True)
class DeviceOption(Options):
    PANEL: ClassVar = "Device"

    device: str = option("auto")
    """Device to compute on: auto, cpu, cuda or cuda:N."""


@dataclass(frozen=True, kw_only=True)
class PickleOption(Options):
    PANEL: ClassVar = "Checkpoints"

    allow_pickle: bool = option(False, estimator=False)
    """``--allow-pickle``: Also read weights from a pickle; nothing else in it is loaded."""


@dataclass(frozen=True, kw_only=True)
class RowsOption(Options):
    PANEL: ClassVar = "Data"

    skip_bad_rows: bool = option(False, estimator=False)
    """``--skip-bad-rows``: Skip rows that cannot be read, and report which."""


@dataclass(frozen=True, kw_only=True)
class RunOptions(DeviceOption):
    """Where a training writes, how it begins there, and what it computes on."""

    PANEL: ClassVar = "Checkpoints"

    out: Path | None = option(None, recorded=False, estimator=False)
    """``--out RUN``: New directory for the trained model."""
    resume: bool = option(False, recorded=False, estimator=False)
    """``--resume``: Continue from the last checkpoint in RUN."""
    change: bool = option(False, recorded=False, needs="resume", estimator=False)
    """``--change``: With --resume, let arguments change the steps from here on; RUN records it."""
    force: bool = option(False, recorded=False, estimator=False)
    """``--force``: Replace the RUN that --out names, if there is one, once training can begin."""
    keep_checkpoints: bool = option(False, estimator=False)
    """``--keep-checkpoints``: Keep RUN/checkpoints when the run is finished."""
    keep_every: int | None = option(None, at_least=1, estimator=False)
    """``--keep-every N``: Keep the checkpoint of every Nth --save-steps for good."""


SMALL_WIDTH: Final = 512
"""Encoders that are narrower take a higher learning rate than the paper's."""
DEFAULT_EPOCHS: Final = 3.0
DEFAULT_BATCH_SIZE: Final = 32
HeadStart = Literal["probe", "contrastive", "random"]
HeadPooling = Literal["cls", "mean"]
Precision = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True)
class TrainingArguments(Options):
    """Arguments of a training run; the same names as flags, here and in arguments.json.

    Raises UsageError for a value of another type or out of range, naming its flag.
    """

    PANEL: ClassVar = "Training"
    SHOWS_RANGES: ClassVar = False

    num_train_epochs: float | None = option(None, STEPS, at_least=0, searched=True, of_steps=True)
    """Passes over the training data; 0 trains nothing after --head-start. If not set: 3, or by the
    number of labels."""
    max_steps: int | None = option(None, STEPS, above=0, of_steps=True)
    """Stop after this many steps, even before --num-train-epochs."""
    train_batch_size: int | None = option(None, MODEL, above=0, searched=True)
    """Examples in each update of the weights. If not set: 32, or 8 for up to 3,000 pairs, scores,
    choices, tags or questions."""
    tokens_per_batch: int = option(4096, NOTHING, above=0, panel="Device", shared=False)
    """Split a step into parts of at most this many tokens and sum their gradients, to bound
    memory."""
    learning_rate: float | None = option(None, STEPS, above=0, searched=True)
    """Highest learning rate. If not set: 5e-5 for widths of 512 and more; below 1e-4, and 3e-4 to
    tag or answer."""
    warmup_proportion: float = option(0.1, STEPS, at_least=0, below=1)
    """Fraction of the steps over which the learning rate rises from 0; it then falls linearly to
    0."""
    head_start: HeadStart | None = option(None, MODEL, of_steps=True)
    """Begin a new head as a fit to the encoder (probe), after contrastive training (contrastive),
    or random. If not set: by the labels."""
    pooling: HeadPooling | None = option(None, MODEL)
    """Read [CLS] (cls) or the mean of all tokens (mean), which transformers cannot open. If not
    set: as MODEL, or by the labels."""
    dropout: float | None = option(None, STEPS, at_least=0, below=1)
    """Dropout in the encoder and before the head, 0 or above and below 1. If not set: as MODEL."""
    weight_decay: float = option(0.01, STEPS, at_least=0)
    """Decoupled weight decay, on weight matrices and embeddings but not on biases and LayerNorm."""
    adam_beta1: float = option(0.9, STEPS, at_least=0, below=1)
    """AdamW's decay rate of the mean gradient."""
    adam_beta2: float = option(0.999, STEPS, at_least=0, below=1)
    """AdamW's decay rate of the mean squared gradient."""
    adam_epsilon: float = option(1e-6, STEPS, above=0)
    """AdamW's guard against division by zero."""
    max_grad_norm: float = option(1.0, STEPS, above=0)
    """Scale gradients down to at most this norm."""
    seed: int = option(42, MODEL, **SEED)
    """Random seed for head weights, example order and dropout."""
    eval_steps: int | None = option(None, NOTHING, above=0, panel="Checkpoints", of_steps=True)
    """Evaluate on dev after every N steps. If not set: at the end of each epoch."""
    save_steps: int | None = option(
        None, NOTHING, above=0, panel="Checkpoints", shared=False, estimator=False, of_steps=True
    )
    """Write a checkpoint after every N steps. If not set: at the end of each epoch."""
    save_total_limit: int = option(
        1, NOTHING, above=0, panel="Checkpoints", shared=False, estimator=False
    )
    """Checkpoints to keep, besides the best weights."""
    early_stopping_patience: int | None = option(None, STEPS, above=0, of_steps=True)
    """Stop after this many evaluations without a better one. If not set: never."""
    freeze_layers: int = option(0, MODEL, at_least=0, of_steps=True)
    """Do not train the embeddings and this many of the lowest layers."""
    freeze_embeddings: bool = option(False, MODEL, of_steps=True)
    """Do not train the embeddings."""
    precision: Precision = option("auto", STEPS, panel="Device")
    """Compute in float32 or bfloat16 (autocast); auto is bfloat16 where the device suits it."""
    deterministic: bool = option(False, NOTHING, panel="Device", estimator=False)
    """On CUDA, repeat to the bit with the same seed and machine, by slower kernels; without it, to
    rounding. A CPU always repeats."""
    logging_steps: int = option(
        10, NOTHING, above=0, panel="Checkpoints", shared=False, estimator=False
    )
    """Write a line of metrics.jsonl after every N steps."""

    @property
    def epochs(self) -> float:
        return DEFAULT_EPOCHS if self.num_train_epochs is None else self.num_train_epochs

    @property
    def batch_size(self) -> int:
        return DEFAULT_BATCH_SIZE if self.train_batch_size is None else self.train_batch_size

    @property
    def peak_rate(self) -> float:
        """``learning_rate`` once it is known."""
        assert self.learning_rate is not None, "for_width has not chosen the rate"
        return self.learning_rate

    def for_width(self, hidden_size: int, *, of_tokens: bool = False) -> Self:
        """The same with the rate for this width, if none is given; ``of_tokens``: tags, answers."""
        if self.learning_rate is not None:
            return self
        small = 3e-4 if of_tokens else 1e-4
        return replace(self, learning_rate=5e-5 if hidden_size >= SMALL_WIDTH else small)
