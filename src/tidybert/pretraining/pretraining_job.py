"""PretrainingJob: all that a pre-training is, of an encoder or of a language model.

The shell and Python fill it in.  Each parameter, with its type, default, help and checks, is
declared here or in a dataclass that the job holds.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Final

from tidybert.catalog import is_size
from tidybert.configuration import BertConfig
from tidybert.errors import UsageError, param
from tidybert.options import Options, named, option
from tidybert.pretraining.batches.instance_options import (
    InstanceOptions,
    MaskingOptions,
    NextTokenOptions,
)
from tidybert.pretraining.pretraining_arguments import PretrainingArguments
from tidybert.storage.model_files import WEIGHTS_FILE
from tidybert.training.training_arguments import RunOptions

# The configuration of a new encoder: a size or a config.json, with sizes of your own.

_KEYS: Final = {
    # flag: key of config.json
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "intermediate": "intermediate_size",
    "max_positions": "max_position_embeddings",
}
_HEAD_WIDTH: Final = 64


@dataclass(frozen=True)
class ModelShape(Options):
    """Sizes that replace those of a size or a config.json; None keeps them."""

    PANEL: ClassVar = "Task"

    layers: int | None = option(None, above=0)
    """``--layers N``: Encoder layers of a new model. If not set: those of SIZE."""
    hidden: int | None = option(None, above=0)
    """``--hidden N``: Width of a new model. If not set: that of SIZE."""
    heads: int | None = option(None, above=0)
    """``--heads N``: Attention heads of a new model. If not set: one for each 64 of --hidden."""
    intermediate: int | None = option(None, above=0)
    """``--intermediate N``: Width of a new model's feed-forward layers. If not set: 4 times
    --hidden."""
    max_positions: int | None = option(None, above=0)
    """``--max-positions N``: Longest sequence that a new model takes. If not set: 512."""

    @property
    def given(self) -> dict[str, int]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    def values(self) -> dict[str, Any]:
        """The sizes by the keys of config.json; heads and feed-forward follow the width."""
        found = self.given
        if self.hidden is not None:
            if self.heads is None:
                if self.hidden % _HEAD_WIDTH:
                    raise UsageError(
                        f"{param('hidden', self.hidden)} is not a multiple of {_HEAD_WIDTH}: give "
                        f"{param('heads')}, a number that divides it"
                    )
                found["heads"] = self.hidden // _HEAD_WIDTH
            found.setdefault("intermediate", 4 * self.hidden)
        return {_KEYS[name]: value for name, value in found.items()}


def is_new(model: str | Path) -> bool:
    """Whether MODEL begins with new weights: a size, or a config.json."""
    path = Path(model)
    return is_size(model) or (path.suffix == ".json" and path.is_file())


def new_config(model: str | Path, shape: ModelShape, vocab_size: int) -> BertConfig:
    """The configuration of a new model with the corpus's vocabulary."""
    if is_size(model):
        config = BertConfig.from_name(str(model), vocab_size=vocab_size)
        return replace(config, **shape.values())
    path = Path(model)
    if (path.parent / WEIGHTS_FILE).exists():
        raise UsageError(
            f"{model} has weights beside it: name {path.parent} to train these further, or copy "
            f"{path.name} to another folder to begin with new ones"
        )
    config = BertConfig.from_file(path)
    if type(config) is not BertConfig:
        raise UsageError(f"{model}: model_type is {config.model_type}; pretrain trains a bert")
    if config.vocab_size != vocab_size:
        raise UsageError(
            f"{model}: vocab_size is {config.vocab_size:,}, and the corpus has {vocab_size:,} "
            "tokens; write that number into the file, or build the corpus with that vocabulary"
        )
    return replace(config, **shape.values())


CACHE_GB: Final = 200.0
Data = str | Path | Sequence[str | Path]
"""A corpus, or several; each may have a weight, as in books:0.5."""


@dataclass(frozen=True, kw_only=True)
class BranchOption(Options):
    PANEL: ClassVar = "Checkpoints"

    branch: str | None = option(None, recorded=False)
    """``--branch RUN@STEP``: Begin with a checkpoint of another RUN; its arguments hold for every
    flag that is not given."""


@dataclass(frozen=True, kw_only=True)
class PretrainingOptions(RunOptions, BranchOption):
    """The options of a pre-training beside its groups, each a flag."""

    verify: bool = option(True, recorded=False)
    """``--verify/--no-verify``: First compare the corpus with its checksums, a second per GB."""
    cache_gb: float = option(CACHE_GB, recorded=False)
    """Most gigabytes of corpora from other machines to keep on this one; those used longest ago go
    first."""
    probe: list[str] | None = option(None)
    """``--probe FILE``: Labelled texts: each evaluation fits a linear probe to the frozen states of
    up to 1,000 and logs its accuracy. Repeatable."""
    # Its help is that of RunOptions.  Checkpoints are large, so a repeated run decides anew.
    keep_checkpoints: bool = option(False, recorded=False)


@dataclass(frozen=True, kw_only=True)
class TextCorpusOptions(Options):
    """How a language model's text becomes a corpus; only for text, not for a corpus."""

    PANEL: ClassVar = "Data"

    vocab: str | None = option(None)
    """``--vocab MODEL``: Model or directory whose vocabulary to use for text. If not set: all words
    and characters of the text."""
    held_out: float | None = option(None)
    """Fraction of the text's documents kept apart to measure on. If not set: 0.005."""


@dataclass(frozen=True, eq=False)
class PretrainingJob(PretrainingOptions, TextCorpusOptions):
    """A model, a corpus, and how to train on it.

    Args:
        model: a size (``mini``), whose vocabulary is the corpus's, or a config.json without weights
            or a MODEL, which have that vocabulary.
        data: a directory that ``tidybert build-corpus`` wrote, or several with their weights:
            ``["wiki:3", "books:1"]``; for a language model one, or text as that command reads it.
        arguments: of the training.
        instances: NextTokenOptions for a language model.
        masking: of an encoder.
        shape: sizes of a new encoder.
    """

    model: str | Path
    data: Data
    arguments: PretrainingArguments = field(default_factory=PretrainingArguments)
    _: KW_ONLY
    instances: InstanceOptions = field(default_factory=InstanceOptions)
    masking: MaskingOptions = field(default_factory=MaskingOptions)
    shape: ModelShape = field(default_factory=ModelShape)
    out: Path = field()

    @property
    def recorded_too(self) -> dict[str, Any]:
        """What arguments.json has beside the arguments of the training and of its instances."""
        given = [self.data] if isinstance(self.data, str | Path) else self.data
        data = [str(each) for each in given]
        found = {
            "model": str(self.model),
            "data": data if len(data) > 1 else data[0],
            **{name: getattr(self, name) for name in named(PretrainingOptions, recorded=True)},
        }
        if not isinstance(self.instances, NextTokenOptions):
            return {**found, **asdict(self.shape)}
        # A language model's states are not probed.
        del found["probe"]
        return {**found, "vocab": self.vocab, "held_out": self.held_out}
