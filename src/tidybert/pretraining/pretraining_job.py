"""PretrainingJob: all that a pre-training is, of an encoder or of a language model.

The shell and Python fill it in.  Each parameter, with its type, default, help and checks, is
declared here or in a dataclass that the job holds.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

from tidybert.pretraining.batches.instance_options import (
    InstanceOptions,
    MaskingOptions,
    NextTokenOptions,
)
from tidybert.pretraining.model_shape import ModelShape
from tidybert.pretraining.pretraining_arguments import PretrainingArguments
from tidybert.training.runs.run_options import RunOptions

CACHE_GB: Final = 200.0
Data = str | Path | Sequence[str | Path]
"""A corpus, or several; each may have a weight, as in books:0.5."""


@dataclass(frozen=True, kw_only=True)
class BranchOption:
    PANEL: ClassVar = "Checkpoints"

    branch: str | None = None
    """``--branch RUN@STEP``: Begin with a checkpoint of another RUN; its arguments hold for every
    flag that is not given."""


@dataclass(frozen=True, kw_only=True)
class PretrainingOptions(RunOptions, BranchOption):
    """The options of a pre-training beside its groups, each a flag."""

    verify: bool = True
    """``--verify/--no-verify``: First compare the corpus with its checksums, a second per GB."""
    cache_gb: float = CACHE_GB
    """Most gigabytes of corpora from other machines to keep on this one; those used longest ago go
    first."""
    probe: list[str] | None = None
    """``--probe FILE``: Labelled texts: each evaluation fits a linear probe to the frozen states of
    up to 1,000 and logs its accuracy. Repeatable."""


@dataclass(frozen=True, kw_only=True)
class TextCorpusOptions:
    """How a language model's text becomes a corpus; only for text, not for a corpus."""

    PANEL: ClassVar = "Data"

    vocab: str | None = None
    """``--vocab MODEL``: Model or directory whose vocabulary to use for text. If not set: all words
    and characters of the text."""
    held_out: float | None = None
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
            "device": self.device,
            "keep_every": self.keep_every,
        }
        if isinstance(self.instances, NextTokenOptions):
            return {**found, "vocab": self.vocab, "held_out": self.held_out}
        return {**found, "probe": self.probe, **asdict(self.shape)}
