"""A pre-training run as one object: its corpora, its options and its processes."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from tidybert.corpus.corpora import copied_corpus, joined
from tidybert.corpus.token_shards import MANIFEST_FILE, TokenCorpus
from tidybert.errors import UsageError, param
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
from tidybert.pretraining.pretraining_job import CACHE_GB, Data
from tidybert.storage.remote_files import is_remote
from tidybert.system.reporter import Reporter
from tidybert.tokenization import BertTokenizer
from tidybert.tokenization.vocabulary import TEXT_TOKENS
from tidybert.training.distributed import Processes
from tidybert.training.runs.run_checkpoints import RunIdentity, weights_sha256

# Which corpora a run reads, in which shares: ``--data wiki:3 --data books:1``.


def weighted_corpora(
    data: Data, reporter: Reporter, cache_gb: float = CACHE_GB
) -> tuple[TokenCorpus, tuple[float, ...]]:
    """The corpora as one, and the share of the tokens of each: books:0.5, or a weight of 1."""
    given = [data] if isinstance(data, str | Path) else list(data)
    if not given:
        raise UsageError(f"{param('data')}: name a directory that build-corpus wrote")
    named = [weighted_path(each) for each in given]
    corpora = [
        TokenCorpus(copied_corpus(path, cache_gb, reporter) if is_remote(path) else path)
        for path, _ in named
    ]
    total = sum(weight for _, weight in named)
    shares = tuple(weight / total for _, weight in named)
    contents = [each.contents_sha256() for each in corpora]
    for place, each in enumerate(contents):
        if each in contents[:place]:
            first, second = named[contents.index(each)][0], named[place][0]
            raise UsageError(
                f"{param('data', second)} has the same contents as {first}; give the corpus once, "
                "with a larger weight"
            )
    if len({each.manifest.settings.held_out for each in corpora}) > 1:
        reporter.tell(
            "the corpora hold out different fractions: a document that several of them have may be "
            "both learned from and measured on"
        )
    return joined(corpora), shares


def weighted_path(given: str | Path) -> tuple[str, float]:
    """A corpus's directory and its weight; a directory with a colon in its name stays whole."""
    text = str(given)
    path, colon, weight = text.rpartition(":")
    if not colon or isinstance(given, Path) or "/" in weight or "\\" in weight:
        return text, 1.0
    if Path(text).exists():
        if _is_corpus(path):
            raise UsageError(
                f"{param('data', text)}: there are {path} and {text}; write {text}:1 for the "
                f"second, or {path}/:{weight} for the first"
            )
        return text, 1.0
    try:
        found = float(weight)
    except ValueError:
        if not _is_corpus(path):
            return text, 1.0
        found = math.nan
    if not (math.isfinite(found) and found > 0):
        raise UsageError(
            f"{param('data', text)}: the weight {weight!r} is not a number above 0; write, for "
            f"example, {path}:3"
        )
    return path, found


def _is_corpus(path: str) -> bool:
    return bool(path) and (Path(path) / MANIFEST_FILE).exists()


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
