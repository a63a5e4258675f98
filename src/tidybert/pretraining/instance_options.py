"""How pre-training instances are made and masked, one field a flag.

Defaults are those of create_pretraining_data.py; of RoBERTa (Liu et al. 2019) for mlm alone, and of
SpanBERT (Joshi et al. 2020, section 3.1) for spans.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final, Literal

from tidybert.configuration import POSITIONS
from tidybert.errors import UsageError, param
from tidybert.training.argument_checks import bad_value, check_arguments

Objective = Literal["mlm+nsp", "mlm", "mlm+sop", "lm"]
OBJECTIVES: Final = ("mlm+nsp", "mlm", "mlm+sop")
NEXT_TOKEN: Final = "lm"
"""The objective of language models: every next token, and no mask."""
MOST_PLACES: Final = 2**16
"""The most tokens of a sequence, and the most sequences that are masked at once."""


@dataclass(frozen=True)
class InstanceOptions:
    """The kind and length of instances.  Raises UsageError for a value that cannot be used."""

    PANEL: ClassVar = "Task"
    CHOICES: ClassVar[tuple[str, ...]] = OBJECTIVES

    objective: str = "mlm+nsp"
    """Beside masked words, mlm+nsp learns whether B follows A, mlm+sop whether A and B are in
    order, and mlm nothing else."""
    max_seq_length: int = 128
    """Most tokens of a sequence, special tokens included."""
    short_seq_prob: float | None = None
    """Share of the documents whose sequences aim at a random shorter length. If not set: 0.1, or 0
    for mlm."""

    def __post_init__(self) -> None:
        check_arguments(self, shares=("short_seq_prob",), choices={"objective": self.CHOICES})
        if self.max_seq_length < self.num_special + 2:
            expected = (
                f"at least {self.num_special + 2}, for {self.num_special} special tokens and text"
            )
            raise bad_value("max_seq_length", self.max_seq_length, expected)
        if self.max_seq_length > MOST_PLACES:
            raise bad_value("max_seq_length", self.max_seq_length, f"at most {MOST_PLACES}")

    @property
    def short_share(self) -> float:
        """short_seq_prob, or its default: RoBERTa trains on full sequences alone."""
        if self.short_seq_prob is not None:
            return self.short_seq_prob
        return 0.1 if self.pairs else 0.0

    @property
    def pairs(self) -> bool:
        """Whether a sequence has two segments."""
        return self.objective in ("mlm+nsp", "mlm+sop")

    @property
    def num_special(self) -> int:
        """[CLS] and the [SEP] after each segment; [SOS] alone for lm."""
        if self.objective == NEXT_TOKEN:
            return 1
        return 3 if self.pairs else 2

    def recorded(self) -> dict[str, Any]:
        """The options that arguments.json holds: those that are flags."""
        return asdict(self)

    @property
    def room(self) -> int:
        """Most tokens of text in a sequence."""
        return self.max_seq_length - self.num_special


@dataclass(frozen=True)
class NextTokenOptions(InstanceOptions):
    """The instances of a language model, single segments after [SOS], and its positions."""

    CHOICES: ClassVar = (NEXT_TOKEN,)

    objective: str = NEXT_TOKEN
    positions: str = POSITIONS[0]

    def __post_init__(self) -> None:
        super().__post_init__()
        check_arguments(self, choices={"positions": POSITIONS})

    def recorded(self) -> dict[str, Any]:
        return {"max_seq_length": self.max_seq_length, "positions": self.positions}


PAPER_SHARE: Final = 0.15
"""The share of the tokens that the paper predicts (section 3.1)."""


@dataclass(frozen=True)
class MaskingOptions:
    """Which tokens are masked, and how.  Raises UsageError for a value that cannot be used."""

    PANEL: ClassVar = "Task"

    masked_lm_prob: float | None = None
    """Share of a sequence's tokens to predict, special tokens counted. If not set: 0.15, or 0.3
    with --recipe fast."""
    max_predictions_per_seq: int | None = None
    """Most predictions in a sequence. If not set: --masked-lm-prob times --max-seq-length, rounded
    up."""
    mask_share: float = 0.8
    """Share of the predicted tokens that become [MASK]."""
    random_share: float = 0.1
    """Share of the predicted tokens that become a random token; the rest keep theirs."""
    whole_word: bool = False
    """Mask all pieces of a word together."""
    span: bool = False
    """Mask spans of whole words, each replaced in one way."""
    max_span_length: int = 10
    """Most words in a span."""
    span_length_p: float = 0.2
    """Probability, after each word of a span, that the span ends there."""

    def __post_init__(self) -> None:
        above_0 = ("masked_lm_prob", "max_predictions_per_seq", "max_span_length", "span_length_p")
        shares = ("masked_lm_prob", "mask_share", "random_share", "span_length_p")
        check_arguments(self, above_0=above_0, shares=shares)
        if self.whole_word and self.span:
            raise UsageError(
                f"{param('span')} masks whole words already: leave out {param('whole_word')}"
            )
        # Sums of shares such as 0.8 + 0.2 may be off by a rounding.
        if self.mask_share + self.random_share > 1 + 1e-9:
            raise UsageError(
                f"{param('mask_share')} and {param('random_share')} are together "
                f"{self.mask_share + self.random_share:g}; expected at most 1"
            )

    @property
    def predicted_share(self) -> float:
        """masked_lm_prob, or the paper's where it is not given."""
        return PAPER_SHARE if self.masked_lm_prob is None else self.masked_lm_prob

    def num_predictions(self, max_seq_length: int) -> int:
        """Most predictions of a sequence."""
        if self.max_predictions_per_seq is not None:
            return self.max_predictions_per_seq
        return math.ceil(max_seq_length * self.predicted_share)
