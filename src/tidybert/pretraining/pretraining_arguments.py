"""PretrainingArguments: every knob of a pre-training run, and the recipes that set them."""

import math
import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, Final, Literal, Self

from tidybert.errors import UsageError, param
from tidybert.options import (
    MEASURE,
    MODEL,
    NOTHING,
    ORDER,
    SEED,
    STEPS,
    Options,
    bad_value,
    option,
)
from tidybert.pretraining.batches.instance_options import PAPER_SHARE
from tidybert.training.training_arguments import Precision

# bert follows appendix A.2 of the paper: batches of 256 sequences of 128, a tenth of the steps at
# 512.  fast is for a fixed, small budget; benchmarks/NOTES.md has measurements of its choices.
_BY_RECIPE: Final[dict[str, tuple[Any, Any]]] = {
    # setting: (bert, fast)
    "initial_weights": ("random", "corpus"),
    "max_steps": (1_000_000, 10_000),
    # fast: by the device, see for_device.
    "tokens_per_step": (32_768, None),
    "optimizer": ("adamw", "muon"),
    "learning_rate": (1e-4, 2e-3),
    "warmup_steps": (10_000, 200),
    "schedule": ("linear", "trapezoid"),
    "adam_beta2": (0.999, 0.98),
    "dropout": (0.1, 0.0),
    "long_share": (0.1, 0.0),
}
RECIPES: Final[dict[str, dict[str, Any]]] = {
    recipe: {setting: values[column] for setting, values in _BY_RECIPE.items()}
    for column, recipe in enumerate(("bert", "fast"))
}
_EARLIER: Final = {
    "ramp_share": 0.0,
    "max_predictions_per_seq": None,
    "mask_share": 0.8,
    "random_share": 0.1,
    "span": False,
}
"""Arguments of earlier versions, with what is done now."""
# A step of 4,096 tokens leaves a GPU idle.  Nobody has measured the larger one.
_FAST_TOKENS: Final = {"cpu": 4_096, "cuda": 131_072}
DECAY_SHARE: Final = 0.2
"""The share of the steps, at the end, over which a trapezoid's learning rate falls."""
COSINE_FLOOR: Final = 0.1
"""The share of the highest learning rate at which a cosine ends."""
MASKED_LM_PROB: Final = {"bert": PAPER_SHARE, "fast": 0.3}
"""The share of the tokens that a recipe predicts where MaskingOptions give none."""


@dataclass(frozen=True)
class PretrainingArguments(Options):
    """Arguments of pre-training; the same names as flags, here and in arguments.json.

    The recipe sets every argument that is None; ``for_device`` the tokens of fast's steps.
    """

    COMMAND: ClassVar = "pretrain"
    PANEL: ClassVar = "Training"
    SHOWS_RANGES: ClassVar = False

    recipe: str = option("bert", STEPS, choices=tuple(RECIPES))
    """Settings to start from: bert for the paper's, or fast for a small budget. It sets every flag
    without a default."""
    initial_weights: Literal["random", "corpus"] | None = option(None, NOTHING)
    """Begin a size with random weights, or with weights from the corpus: word embeddings from
    neighbouring words, and heads that look at neighbours."""
    max_steps: int | None = option(None, STEPS, above=0)
    """Updates of the weights."""
    tokens_per_step: int | None = option(None, STEPS, above=0)
    """Tokens in each update, over all processes. If not set: 32,768 for bert; for fast 4,096 on
    CPU and 131,072, not measured, on CUDA."""
    optimizer: Literal["adamw", "muon"] | None = option(None, MODEL)
    """``adamw``, or ``muon`` for the encoder's matrices and AdamW for the rest."""
    micro_batch: str | int | None = option(None, NOTHING, panel="Device")
    """Most tokens at once, to bound memory; auto: as many as CUDA holds. If not set: 4,096 on CPU,
    32,768 on CUDA."""
    learning_rate: float | None = option(None, STEPS, above=0)
    """Highest learning rate of the schedule."""
    warmup_steps: int | None = option(None, STEPS, at_least=0)
    """Steps over which the learning rate rises from 0; at most a tenth of all."""
    schedule: Literal["linear", "trapezoid", "cosine"] | None = option(None, STEPS)
    """After the warm-up, linear falls at once, trapezoid after a level part, cosine along half a
    wave; all end at --min-learning-rate."""
    decay_steps: int | None = option(None, STEPS, above=0)
    """Last steps, over which a trapezoid falls. If not set: a fifth of all."""
    min_learning_rate: float | None = option(None, STEPS, at_least=0)
    """Learning rate at which the schedule ends. If not set: 0, for cosine a tenth of
    --learning-rate."""
    adam_beta1: float = option(0.9, STEPS, at_least=0, below=1)
    """Adam's decay rate of the mean gradient."""
    adam_beta2: float | None = option(None, STEPS, at_least=0, below=1)
    """Adam's decay rate of the mean squared gradient."""
    adam_epsilon: float = option(1e-6, STEPS, above=0)
    """Adam's guard against division by zero."""
    weight_decay: float = option(0.01, STEPS, at_least=0)
    """Decoupled weight decay, on weight matrices and embeddings but not on biases and LayerNorm."""
    max_grad_norm: float = option(1.0, STEPS, above=0)
    """Scale gradients down to at most this norm."""
    dropout: float | None = option(None, STEPS, at_least=0, below=1)
    """Dropout of hidden states and attention weights in pre-training; config.json keeps the model's
    own."""
    long_share: float | None = option(None, STEPS | MEASURE, at_least=0, at_most=1)
    """Fraction of the steps, at the end, that train on sequences of --long-seq-length."""
    long_seq_length: int = option(512, ORDER | MEASURE, above=0)
    """Most tokens of a sequence in the steps of --long-share."""
    seed: int = option(42, STEPS | ORDER, **SEED)
    """Random seed for initial weights, instances, masks and dropout."""
    eval_steps: int = option(1000, NOTHING, above=0, panel="Checkpoints")
    """Measure on held-out documents after every N steps, and at the end."""
    eval_tokens: int = option(65_536, MEASURE, above=0, panel="Checkpoints")
    """Tokens to measure on, the same ones each time."""
    save_steps: int = option(1000, NOTHING, above=0, panel="Checkpoints")
    """Write a checkpoint after every N steps, and at the end."""
    save_minutes: float = option(30.0, NOTHING, above=0, panel="Checkpoints")
    """Also write a checkpoint after this many minutes."""
    save_total_limit: int = option(2, NOTHING, above=0, panel="Checkpoints")
    """Checkpoints to keep, besides the best weights."""
    logging_steps: int = option(10, NOTHING, above=0, panel="Checkpoints")
    """Write a line of metrics.jsonl after every N steps."""
    max_bad_steps: int = option(10, NOTHING, above=0)
    """Stop after this many steps in a row whose loss or gradient is not finite; they update
    nothing."""
    skip_steps: str | None = option(None, STEPS)
    """``--skip-steps A:B``: Pass over the data of steps A to B without an update, as after a
    divergence; several ranges as A:B,C:D."""
    preempt_seconds: float | None = option(None, NOTHING, above=0, panel="Device")
    """Seconds between SIGTERM and the kill: train on while a checkpoint still fits. If not set: end
    after the step at hand."""
    precision: Precision = option("auto", STEPS, panel="Device")
    """Compute in float32 or bfloat16 (autocast); auto is bfloat16 where the device suits it."""
    deterministic: bool = option(False, NOTHING, panel="Device")
    """On CUDA, repeat to the bit with the same seed and machine, by slower kernels; without it, to
    rounding. A CPU always repeats."""
    sharding: Literal["none", "full"] = option("none", NOTHING, panel="Device")
    """With several processes: none gives each the whole model (DDP), full divides weights,
    gradients and moments among them (FSDP)."""
    compile: bool = option(False, NOTHING, panel="Device")
    """Compile the layers with torch.compile (CUDA), and pad micro-batches to one shape."""
    peak_tflops: float | None = option(None, NOTHING, above=0, panel="Device")
    """Peak of each device, in 1e12 operations a second, to show the share reached. If not set:
    known for A100, H100 and H200."""
    checkpoint_activations: bool = option(False, NOTHING, panel="Device")
    """Save memory: compute each layer again in the backward pass instead of keeping its
    activations."""

    def __post_init__(self) -> None:
        # An unknown recipe sets nothing, and is refused below.
        for name, value in RECIPES.get(self.recipe, {}).items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        given: Any = self.micro_batch
        if isinstance(given, str) and given.isdecimal():
            # From the shell.
            given = int(given)
            object.__setattr__(self, "micro_batch", given)
        is_number = isinstance(given, int) and not isinstance(given, bool)
        if (isinstance(given, str) and given != "auto") or (is_number and given <= 0):
            raise bad_value("micro_batch", given, "a number above 0, or auto")
        super().__post_init__()
        skipped_ranges(self.skip_steps)
        lowest = self.min_learning_rate
        if lowest is not None and lowest > self.setting("learning_rate"):
            expected = f"at most {param('learning_rate', self.learning_rate)}"
            raise bad_value("min_learning_rate", lowest, expected)

    def for_device(self, kind: str) -> Self:
        """The same with the tokens a step that the recipe takes on "cpu", "cuda" or another kind.

        The rate stays.  It was measured with 4,096 tokens, and the square-root rule (Malladi et al.
        2022) would give 1.1e-2 with 131,072, far above what is published for BERT of width 768.
        """
        if self.tokens_per_step is not None:
            return self
        return replace(self, tokens_per_step=_FAST_TOKENS.get(kind, _FAST_TOKENS["cpu"]))

    @property
    def num_moments(self) -> int:
        """Numbers that the optimizer keeps for a weight."""
        return 2 if self.setting("optimizer") == "adamw" else 1

    def setting(self, name: str) -> Any:
        """A value that the recipe may have set, and so is not None."""
        value = getattr(self, name)
        assert value is not None
        return value


def rate_at(step: int, arguments: PretrainingArguments) -> float:
    """The learning rate of step 0, 1, …: a rise over the warm-up, then the schedule."""
    num_steps, peak = arguments.setting("max_steps"), arguments.setting("learning_rate")
    warmup = min(arguments.setting("warmup_steps"), num_steps // 10)
    if step < warmup:
        return float(peak * (step + 1) / (warmup + 1))
    start, lowest = warmup, arguments.min_learning_rate
    if arguments.schedule == "trapezoid":
        decay = arguments.decay_steps
        start = max(warmup, num_steps - (int(num_steps * DECAY_SHARE) if decay is None else decay))
    if step < start:
        return float(peak)
    left = (num_steps - step) / max(1, num_steps - start)
    if arguments.schedule == "cosine":
        lowest = peak * COSINE_FLOOR if lowest is None else lowest
        return float(lowest + (peak - lowest) * (1 - math.cos(math.pi * left)) / 2)
    if not lowest:
        # Rounded otherwise than the line below.
        return float(peak * (num_steps - step) / max(1, num_steps - start))
    return float(lowest + (peak - lowest) * left)


@cache
def skipped_ranges(text: str | None) -> tuple[range, ...]:
    """The steps that ``skip_steps`` names, counted from 1.  Raises UsageError."""
    found = []
    for each in text.split(",") if text else ():
        parts = re.fullmatch(r"([1-9][0-9]{0,14}):([1-9][0-9]{0,14})", each.strip())
        first, last = (int(parts[1]), int(parts[2])) if parts else (1, 0)
        if first > last:
            raise bad_value(
                "skip_steps", text, "the first and the last step as A:B, counted from 1"
            )
        found.append(range(first, last + 1))
    return tuple(found)


def is_skipped(step: int, arguments: PretrainingArguments) -> bool:
    """Whether the data of step 0, 1, … are passed over."""
    return any(step + 1 in each for each in skipped_ranges(arguments.skip_steps))


def first_long_step(arguments: PretrainingArguments) -> int:
    """The first of the steps on sequences of ``long_seq_length``, counted from 0."""
    num_steps: int = arguments.setting("max_steps")
    return num_steps - int(num_steps * arguments.setting("long_share"))


def is_what_it_was(name: str, value: Any, schedule: str) -> bool:
    """Whether an argument that earlier versions had, and recorded, asked for what is done now."""
    if name == "decay_share":
        return schedule == "linear" or value == DECAY_SHARE
    if name in ("max_span_length", "span_length_p"):
        return True
    return name in _EARLIER and value == _EARLIER[name]


def least_micro_batch(arguments: PretrainingArguments, longest: int) -> int:
    """The tokens that a micro-batch must hold where a sequence may have ``longest``."""
    # One of constant shape holds some padding besides a sequence.
    return 2 * longest if arguments.compile else longest


def check_lengths(arguments: PretrainingArguments, max_seq_length: int, positions: int) -> None:
    """Raise UsageError where sequences are longer than a micro-batch or the model's positions."""
    longest = max(max_seq_length, arguments.long_seq_length if arguments.long_share else 0)
    if longest > positions:
        flag = param("max_seq_length") if max_seq_length > positions else param("long_seq_length")
        raise UsageError(f"{flag} is {longest}, but the model has positions for {positions} tokens")
    tokens, micro = arguments.setting("tokens_per_step"), arguments.micro_batch
    if tokens < longest:
        raise bad_value("tokens_per_step", tokens, f"at least {longest}, the longest sequence")
    if isinstance(micro, int) and micro < least_micro_batch(arguments, longest):
        wanted = "the longest sequence"
        if arguments.compile:
            wanted = f"twice {wanted}, with {param('compile')}"
        least = least_micro_batch(arguments, longest)
        raise bad_value("micro_batch", micro, f"at least {least}, {wanted}")


# The arguments of a language model's training: those of pre-training with other defaults.


@dataclass(frozen=True)
class LanguageModelArguments(PretrainingArguments):
    """The arguments of pre-training, with the recipe for a small budget."""

    COMMAND: ClassVar = "train-lm"
    PANEL: ClassVar = "Training"

    recipe: str = option("fast", STEPS, choices=tuple(RECIPES))
    """Settings to start from: fast for a small budget, or bert for the paper's. It sets every flag
    without a default."""
    initial_weights: Literal["random", "corpus"] | None = option("random", NOTHING)
    """Language models begin with random weights: what BERT takes from the corpus lies on both
    sides of a word."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.initial_weights != "random":
            raise UsageError(
                f"{param('initial_weights', self.initial_weights)}: a language model begins with "
                "random weights; leave it out"
            )
