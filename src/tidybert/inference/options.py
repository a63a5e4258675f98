"""What a model is opened and asked with, one field an option; loads no torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tidybert.options import Options, option
from tidybert.training.runs.run_options import DeviceOption, PickleOption, RowsOption

AnswerPrecision = Literal["auto", "float32", "bfloat16", "float16", "int8"]


@dataclass(frozen=True, kw_only=True)
class PrecisionOption(Options):
    precision: AnswerPrecision = option("auto", panel="Device")
    """Compute in float32, bfloat16, int8 (CPU) or float16 (CUDA). auto: bfloat16 on CUDA after
    training in it, else float32."""


@dataclass(frozen=True, kw_only=True)
class TrainedLengthOption(Options):
    max_seq_length: int | None = option(None)
    """Most tokens of a text; a longer one is cut. If not set: as in training."""


@dataclass(frozen=True, kw_only=True)
class AnswerOptions(PrecisionOption, RowsOption, PickleOption, DeviceOption):
    """How a model is opened, and the rows of a file are read for it."""


@dataclass(frozen=True, kw_only=True)
class PredictorOptions(TrainedLengthOption, PrecisionOption, PickleOption, DeviceOption):
    """How a finished model is opened."""


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
