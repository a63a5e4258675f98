"""What every training is told beside its data and its arguments, one field a flag."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from tidybert.errors import UsageError, param
from tidybert.training.training_arguments import bad_value


@dataclass(frozen=True, kw_only=True)
class DeviceOption:
    PANEL: ClassVar = "Device"

    device: str = "auto"
    """Device to compute on: auto, cpu, cuda or cuda:N."""


@dataclass(frozen=True, kw_only=True)
class PickleOption:
    PANEL: ClassVar = "Checkpoints"

    allow_pickle: bool = False
    """``--allow-pickle``: Also read weights from a pickle; nothing else in it is loaded."""


@dataclass(frozen=True, kw_only=True)
class RowsOption:
    PANEL: ClassVar = "Data"

    skip_bad_rows: bool = False
    """``--skip-bad-rows``: Skip rows that cannot be read, and report which."""


@dataclass(frozen=True, kw_only=True)
class RunOptions(DeviceOption):
    """Where a training writes, how it begins there, and what it computes on."""

    PANEL: ClassVar = "Checkpoints"

    out: Path | None = None
    """``--out RUN``: New directory for the trained model."""
    resume: bool = False
    """``--resume``: Continue from the last checkpoint in RUN."""
    change: bool = False
    """``--change``: With --resume, let arguments change the steps from here on; RUN records it."""
    force: bool = False
    """``--force``: Replace the RUN that --out names, if there is one, once training can begin."""
    keep_checkpoints: bool = False
    """``--keep-checkpoints``: Keep RUN/checkpoints when the run is finished."""
    keep_every: int | None = field(default=None, metadata={"min": 1})
    """``--keep-every N``: Keep the checkpoint of every Nth --save-steps for good."""

    def __post_init__(self) -> None:
        if self.keep_every is not None and self.keep_every < 1:
            raise bad_value("keep_every", self.keep_every, "a number above 0")
        if self.change and not self.resume:
            raise UsageError(
                f"{param('change')} goes with {param('resume')}, in a RUN that has begun"
            )
