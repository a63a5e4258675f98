"""A pre-training run as one object: its corpus, its options and its processes."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import nn

from tidybert.corpus.token_shards import TokenCorpus
from tidybert.pretraining.instance_options import InstanceOptions, MaskingOptions
from tidybert.pretraining.pretraining_arguments import MASKED_LM_PROB, PretrainingArguments
from tidybert.training.distributed import Processes
from tidybert.training.run_directory import deciding, fingerprint


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

    def fingerprint(self, model: nn.Module) -> str:
        """A hash of all that decides the run's course, for a model with its first weights."""
        left_out = ("micro_", "max_bad_steps", "sharding")
        course = deciding(asdict(self.arguments), but=left_out)
        options = [asdict(self.instances), asdict(self.masking), course]
        words = [self.corpus.manifest.to_dict(), *options]
        return fingerprint(json.dumps(words, sort_keys=True), model)
