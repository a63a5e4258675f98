"""A pre-training run as one object: its corpus, its options and its processes."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import nn

from tidybert.corpus.token_shards import TokenCorpus
from tidybert.options import MEASURE, ORDER, changes_of
from tidybert.pretraining.batches.instance_options import (
    NEXT_TOKEN,
    InstanceOptions,
    MaskingOptions,
)
from tidybert.pretraining.pretraining_arguments import (
    MASKED_LM_PROB,
    PretrainingArguments,
    is_what_it_was,
)
from tidybert.system.reporter import Reporter
from tidybert.tokenization import BertTokenizer
from tidybert.tokenization.vocabulary import TEXT_TOKENS
from tidybert.training.distributed import Processes
from tidybert.training.runs.run_checkpoints import RunIdentity, weights_sha256


@dataclass(frozen=True)
class PretrainingPlan:
    """The corpus, its ``shares`` of the tokens, all options, this process, who hears notes."""

    corpus: TokenCorpus
    arguments: PretrainingArguments
    instances: InstanceOptions
    masking: MaskingOptions | None
    processes: Processes
    reporter: Reporter
    shares: Sequence[float] = (1.0,)

    def __post_init__(self) -> None:
        if self.is_causal:
            object.__setattr__(self, "masking", None)
        elif self.masking is not None and self.masking.masked_lm_prob is None:
            share = MASKED_LM_PROB[self.arguments.recipe]
            object.__setattr__(self, "masking", replace(self.masking, masked_lm_prob=share))

    @property
    def is_causal(self) -> bool:
        return self.instances.objective == NEXT_TOKEN

    @property
    def task(self) -> str:
        """The command whose run this is."""
        return "train-lm" if self.is_causal else "pretrain"

    @property
    def predicted_share(self) -> float:
        return 1.0 if self.masking is None else self.masking.predicted_share

    def num_predictions(self, max_seq_length: int) -> int:
        if self.masking is None:
            return max_seq_length
        return self.masking.num_predictions(max_seq_length)

    def tokenizer(self) -> BertTokenizer:
        """The model's tokenizer: the corpus's, with [SOS] and [EOS] for a language model."""
        found = self.corpus.tokenizer()
        return found.with_tokens(TEXT_TOKENS) if self.is_causal else found

    @property
    def longest(self) -> int:
        """Most tokens of any sequence in the run."""
        lengths = [self.instances.max_seq_length]
        if self.arguments.setting("long_share"):
            lengths.append(self.arguments.long_seq_length)
        return max(lengths)

    def to_dict(self) -> dict[str, Any]:
        masking = {} if self.masking is None else asdict(self.masking)
        return {**self.instances.recorded(), **masking, **asdict(self.arguments)}

    def identity(self, model: nn.Module) -> RunIdentity:
        """What a resumed run must share with this one, for a model with its first weights."""
        settings = self.to_dict()
        if len(self.shares) > 1:
            settings["data"] = f"shares of {', '.join(f'{each:.6g}' for each in self.shares)}"
        return RunIdentity(
            settings=settings,
            contents={
                "corpus": self.corpus.contents_sha256(),
                "weights": weights_sha256(model),
            },
            kinds={
                **changes_of(self.instances, MaskingOptions, self.arguments),
                "corpus": ORDER | MEASURE,
                "data": ORDER | MEASURE,
            },
            was_so=lambda name, value: is_what_it_was(
                name, value, self.arguments.setting("schedule")
            ),
        )
