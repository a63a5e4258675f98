"""How pre-training instances are made and masked, one field a flag.

Defaults are those of create_pretraining_data.py, and of RoBERTa (Liu et al. 2019) for mlm alone.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final, Literal

from tidybert.configuration import POSITIONS
from tidybert.options import MEASURE, MODEL, ORDER, STEPS, Options, bad_value, option

Objective = Literal["mlm+nsp", "mlm", "mlm+sop", "lm"]
OBJECTIVES: Final = ("mlm+nsp", "mlm", "mlm+sop")
NEXT_TOKEN: Final = "lm"
"""The objective of language models: every next token, and no mask."""
MOST_PLACES: Final = 2**16
"""The most tokens of a sequence."""


@dataclass(frozen=True)
class InstanceOptions(Options):
    """The kind and length of instances.  Raises UsageError for a value that cannot be used."""

    PANEL: ClassVar = "Task"
    SHOWS_RANGES: ClassVar = False

    objective: Objective = option("mlm+nsp", MODEL, choices=OBJECTIVES)
    """Beside masked words, mlm+nsp learns whether B follows A, mlm+sop whether A and B are in
    order, and mlm nothing else."""
    max_seq_length: int = option(128, ORDER | MEASURE, at_most=MOST_PLACES)
    """Most tokens of a sequence, special tokens included."""
    short_seq_prob: float | None = option(None, ORDER | MEASURE, at_least=0, at_most=1)
    """Fraction of the documents whose sequences aim at a random shorter length. If not set: 0.1, or
    0 for mlm."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_seq_length < self.num_special + 2:
            expected = (
                f"at least {self.num_special + 2}, for {self.num_special} special tokens and text"
            )
            raise bad_value("max_seq_length", self.max_seq_length, expected)

    @property
    def short_share(self) -> float:
        """short_seq_prob, or its default: RoBERTa trains on full sequences alone."""
        if self.short_seq_prob is not None:
            return self.short_seq_prob
        return 0.1 if self.pairs else 0.0

    @property
    def pairs(self) -> bool:
        return self.objective in ("mlm+nsp", "mlm+sop")

    @property
    def num_special(self) -> int:
        """[CLS] and the [SEP] after each segment; [SOS] alone for lm."""
        if self.objective == NEXT_TOKEN:
            return 1
        return 3 if self.pairs else 2

    def recorded(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def room(self) -> int:
        """Most tokens of text in a sequence."""
        return self.max_seq_length - self.num_special


@dataclass(frozen=True)
class NextTokenOptions(InstanceOptions):
    """The instances of a language model, single segments after [SOS], and its positions."""

    objective: Objective = option(NEXT_TOKEN, MODEL, choices=(NEXT_TOKEN,))
    # The model has a position for each token of a sequence.
    max_seq_length: int = option(128, MODEL, at_most=MOST_PLACES)
    positions: str = option(POSITIONS[0], MODEL, choices=POSITIONS)

    def recorded(self) -> dict[str, Any]:
        return {"max_seq_length": self.max_seq_length, "positions": self.positions}


PAPER_SHARE: Final = 0.15
"""The share of the tokens that the paper predicts (section 3.1)."""


@dataclass(frozen=True)
class MaskingOptions(Options):
    """Which tokens are masked.  Raises UsageError for a value that cannot be used."""

    PANEL: ClassVar = "Task"

    masked_lm_prob: float | None = option(None, STEPS | MEASURE, above=0, at_most=1)
    """Fraction of a sequence's tokens to predict, special tokens counted. If not set: 0.15, or 0.3
    in the recipe fast."""
    whole_word: bool = option(False, STEPS | MEASURE)
    """Mask all tokens of a word together."""

    @property
    def predicted_share(self) -> float:
        """masked_lm_prob, or the paper's where it is not given."""
        return PAPER_SHARE if self.masked_lm_prob is None else self.masked_lm_prob

    def num_predictions(self, max_seq_length: int) -> int:
        return math.ceil(max_seq_length * self.predicted_share)
