"""The arguments of a language model's training: those of pre-training with other defaults."""

from dataclasses import dataclass
from typing import ClassVar

from tidybert.errors import UsageError, param
from tidybert.pretraining.pretraining_arguments import PretrainingArguments
from tidybert.training.changes import NOTHING, STEPS, argument


@dataclass(frozen=True)
class LanguageModelArguments(PretrainingArguments):
    """The arguments of pre-training, with the recipe for a small budget."""

    COMMAND: ClassVar = "train-lm"
    PANEL: ClassVar = "Training"

    recipe: str = argument(STEPS, "fast")
    """Settings to start from: fast for a small budget, or bert for the paper's. It sets every flag
    without a default."""
    initial_weights: str | None = argument(NOTHING, "random")
    """Language models begin with random weights: what BERT takes from the corpus lies on both
    sides of a word."""

    def __post_init__(self) -> None:
        """Raises UsageError as PretrainingArguments, and for initial weights from the corpus."""
        super().__post_init__()
        if self.initial_weights != "random":
            raise UsageError(
                f"{param('initial_weights', self.initial_weights)}: a language model begins with "
                "random weights; leave it out"
            )
