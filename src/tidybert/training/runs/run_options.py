"""What every training is told beside its data and its arguments, one field a flag."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tidybert.options import Options, option


@dataclass(frozen=True, kw_only=True)
class DeviceOption(Options):
    PANEL: ClassVar = "Device"

    device: str = option("auto")
    """Device to compute on: auto, cpu, cuda or cuda:N."""


@dataclass(frozen=True, kw_only=True)
class PickleOption(Options):
    PANEL: ClassVar = "Checkpoints"

    allow_pickle: bool = option(False, estimator=False)
    """``--allow-pickle``: Also read weights from a pickle; nothing else in it is loaded."""


@dataclass(frozen=True, kw_only=True)
class RowsOption(Options):
    PANEL: ClassVar = "Data"

    skip_bad_rows: bool = option(False, estimator=False)
    """``--skip-bad-rows``: Skip rows that cannot be read, and report which."""


@dataclass(frozen=True, kw_only=True)
class RunOptions(DeviceOption):
    """Where a training writes, how it begins there, and what it computes on."""

    PANEL: ClassVar = "Checkpoints"

    out: Path | None = option(None, recorded=False, estimator=False)
    """``--out RUN``: New directory for the trained model."""
    resume: bool = option(False, recorded=False, estimator=False)
    """``--resume``: Continue from the last checkpoint in RUN."""
    change: bool = option(False, recorded=False, needs="resume", estimator=False)
    """``--change``: With --resume, let arguments change the steps from here on; RUN records it."""
    force: bool = option(False, recorded=False, estimator=False)
    """``--force``: Replace the RUN that --out names, if there is one, once training can begin."""
    keep_checkpoints: bool = option(False, estimator=False)
    """``--keep-checkpoints``: Keep RUN/checkpoints when the run is finished."""
    keep_every: int | None = option(None, at_least=1, estimator=False)
    """``--keep-every N``: Keep the checkpoint of every Nth --save-steps for good."""
