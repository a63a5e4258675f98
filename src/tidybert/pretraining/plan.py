"""A pre-training run as one object: its corpus, its options and its processes."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from torch import nn

from tidybert.corpus.token_shards import TokenCorpus
from tidybert.pretraining.instance_options import InstanceOptions, MaskingOptions
from tidybert.pretraining.pretraining_arguments import (
    MASKED_LM_PROB,
    PretrainingArguments,
    why_not_so_many_steps,
)
from tidybert.training.course import INTERVALS, Course, weights_sha256
from tidybert.training.distributed import Processes

# With other values the steps so far would have been the same, but for rounding and dropout.
_MAY_CHANGE: Final = (
    *INTERVALS, "max_bad_steps", "micro_batch", "precision", "deterministic", "sharding",
    "compile", "checkpoint_activations",
)  # fmt: skip


@dataclass(frozen=True)
class PretrainingPlan:
    """The corpus, all options, this process among the others, and a function that shows notes.

    Where ``masking`` does not say how many tokens to predict, the recipe does.
    """

    corpus: TokenCorpus
    arguments: PretrainingArguments
    instances: InstanceOptions
    masking: MaskingOptions
    processes: Processes
    note: Callable[[str], None]

    def __post_init__(self) -> None:
        if self.masking.masked_lm_prob is None:
            share = MASKED_LM_PROB[self.arguments.recipe]
            object.__setattr__(self, "masking", replace(self.masking, masked_lm_prob=share))

    @property
    def longest(self) -> int:
        """Most tokens of any sequence in the run."""
        lengths = [self.instances.max_seq_length]
        if self.arguments.setting("long_share"):
            lengths.append(self.arguments.long_seq_length)
        return max(lengths)

    def to_dict(self) -> dict[str, Any]:
        """All options, as arguments.json holds them."""
        return {**asdict(self.instances), **asdict(self.masking), **asdict(self.arguments)}

    def course(self, model: nn.Module) -> Course:
        """All that decides the run's course, for a model with its first weights."""
        return Course(
            settings=self.to_dict(),
            contents={
                "corpus": self.corpus.manifest.contents_sha256(),
                "weights": weights_sha256(model),
            },
            free=_MAY_CHANGE,
            refusal=self._refusal,
        )

    def _refusal(self, name: str, before: Any, step: int) -> str | None:
        """Why a setting must not change after a step; None where it may."""
        if name == "max_steps":
            return why_not_so_many_steps(self.arguments, before, step)
        return ""
