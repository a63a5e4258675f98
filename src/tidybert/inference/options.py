"""What a model is opened and asked with, one field an option; loads no torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from tidybert.configuration import Pooling
from tidybert.options import Options, option
from tidybert.tasks.task_options import DescriptionsOption, ScoreOption
from tidybert.training.training_arguments import DeviceOption, PickleOption, RowsOption

AnswerPrecision = Literal["auto", "float32", "bfloat16", "float16", "int8"]
Combination = Literal["concat", "sum", "mean"]


@dataclass(frozen=True, kw_only=True)
class PrecisionOption(Options):
    precision: AnswerPrecision = option("auto", panel="Device", estimator=False)
    """Compute in float32, bfloat16, int8 (CPU) or float16 (CUDA). auto: bfloat16 after
    training in it where the device is made for it, else float32."""


@dataclass(frozen=True, kw_only=True)
class TrainedLengthOption(Options):
    max_seq_length: int | None = option(None)
    """Most tokens of a text; a longer one is cut. If not set: as in training."""


@dataclass(frozen=True, kw_only=True)
class AnswerOptions(PrecisionOption, RowsOption, PickleOption, DeviceOption):
    """How a model is opened, and the rows of a file are read for it."""


@dataclass(frozen=True, kw_only=True)
class OpeningOptions(PrecisionOption, PickleOption, DeviceOption):
    """How any model is opened."""


@dataclass(frozen=True, kw_only=True)
class PredictorOptions(ScoreOption, TrainedLengthOption, OpeningOptions):
    """How a finished model is opened."""


@dataclass(frozen=True, kw_only=True)
class PairOptions(OpeningOptions):
    """How a model of pairs of sentences is opened."""

    max_seq_length: int | None = option(None)
    """Most tokens of a text; a longer one is cut. If not set: as many as the model allows."""


@dataclass(frozen=True, kw_only=True)
class NamedClassesOptions(DescriptionsOption):
    """Classes that are known by their names."""

    labels: Any = option(None)
    """``--labels NAME,NAME``: Classify by the names of these classes, without training; RUN is then
    any MODEL."""


@dataclass(frozen=True, kw_only=True)
class RedactOptions(Options):
    """Texts without their entities."""

    redact: bool = option(False)
    """``--redact``: Give the texts themselves, with [PER] and such in place of the entities that
    RUN tags."""
    redact_with: str = option("[{type}]", needs="redact")
    """``--redact-with TEXT``: The text in place of an entity. {type} is its type, {number} the
    number that equal strings of a text share."""
    redact_columns: str | None = option(None, needs="redact")
    """``--redact-columns NAME,NAME``: Columns to redact, beside that of --text."""
    patterns: str | None = option(None, needs="redact")
    """``--patterns NAME,NAME``: Also redact any of email, iban, card and phone; phone:US reads
    national numbers. They need no RUN."""


@dataclass(frozen=True, kw_only=True)
class SentenceOptions(Options):
    """What a directory says of its vectors, unless an option does."""

    pooling: Pooling | None = option(None)
    """Pool the token vectors of a text: mean, max or cls, which is [CLS]. If not set: as MODEL's
    modules.json says, else mean."""
    max_seq_length: int | None = option(None)
    """Most tokens of a text; a longer one is cut. If not set: as MODEL's sentence_bert_config.json
    says, else as many as the model allows."""


@dataclass(frozen=True, kw_only=True)
class PassageOptions(Options):
    PANEL: ClassVar = "Data"

    passages: int | None = option(None, at_least=1)
    """``--passages N``: Cut each text at ends of sentences into passages of at most N tokens, with
    a vector each."""
    passage_stride: int | None = option(None, at_least=1, needs="passages")
    """``--passage-stride N``: Begin the next passage at most N tokens after the last one. If not
    set: as --passages, so they do not overlap."""


@dataclass(frozen=True, kw_only=True)
class EmbedderOptions(SentenceOptions, OpeningOptions):
    """How an encoder is opened, and makes vectors."""

    layers: str | int | Sequence[int] = option(-1)
    """Layers to take: -1 is the last, 0 the embeddings, -2,-1 a list, last4 the last four, and all
    every layer."""
    combine: Combination = option("concat")
    """Make one vector of several layers by concat, sum or mean."""
    normalize: bool | None = option(None)
    """``--normalize/--no-normalize``: Scale each vector to length 1, or leave it. If not set: as
    MODEL says, else leave it."""
    prompt: str | None = option(None, panel="Data")
    """Put this before each text. If not set: as --prompt-name says."""
    prompt_name: str | None = option(None, panel="Data")
    """``--prompt-name NAME``: Put MODEL's prompt of this name before each text. If not set: MODEL's
    default prompt, if it has one."""
    truncate_dim: int | None = option(None, above=0, panel="Data")
    """``--truncate-dim D``: Keep the first D numbers of each vector, of a Matryoshka model. If not
    set: as MODEL says, else all."""


@dataclass(frozen=True, kw_only=True)
class MeasureOptions(Options):
    """How a finished model is measured."""

    report: Path | None = option(None)
    """``--report DIR``: Write a page to look at, and its figures, into DIR."""
    # Numbers of metrics.bootstrap, which would load NumPy for every --help.
    resamples: int = option(1000, at_least=100)
    """``--resamples N``: Samples to draw for the intervals of --report; fewer take less time."""
    texts: Any = option(None)
    """``--texts FILE``: For pairs and embed, search among the texts of FILE too."""
