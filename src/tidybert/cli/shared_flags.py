"""Flags and arguments that several commands share, each declared once."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from tidybert.cli.config_file import take_config
from tidybert.cli.output import choose_notes, note
from tidybert.errors import UsageError
from tidybert.storage.output_lock import output_lock
from tidybert.system.cores import use_threads

ModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help="A name that tidybert models lists, or a directory.")
]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A finished RUN.")]
TextsArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="Texts; - reads standard input.")
]
CorpusArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="CORPUS...",
        help="Files, folders or globs: text with a blank line between documents, JSON lines, "
        "Parquet; plain, .gz, .xz or .zst.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class NotesFlags:
    """The flags of every command: ``takes`` adds them."""

    quiet: bool = False
    """``--quiet``: Show results and errors alone."""
    verbose: bool = False
    """``--verbose``: Also show what tidybert decides by itself, and why."""

    def prepare(self) -> None:
        if self.quiet and self.verbose:
            raise UsageError("--quiet and --verbose contradict each other; give one of them")
        choose_notes(quiet=self.quiet, verbose=self.verbose)


@dataclass(frozen=True, kw_only=True)
class JsonFlag:
    json: bool = False
    """``--json``: Print one JSON object."""


@dataclass(frozen=True, kw_only=True)
class HeldOutFlag:
    held_out: float = 0.005
    """Share of the documents kept apart to measure on."""


@dataclass(frozen=True, kw_only=True)
class NewDirectoryFlag:
    out: Path
    """``--out DIR``: New directory to write."""


@contextmanager
def new_directory(out: Path) -> Iterator[None]:
    """Within the block this process alone writes ``out``; UsageError if something is there."""
    with output_lock(out):
        if os.path.lexists(out):
            raise UsageError(f"--out {out} is there already; name a new directory")
        yield


@dataclass(frozen=True, kw_only=True)
class RunFlags:
    PANEL: ClassVar = "Checkpoints"

    out: Path
    """``--out RUN``: New directory for the trained model."""
    config: Path | None = field(default=None, metadata={"callback": take_config})
    """``--config FILE``: Repeat the run whose arguments.json this is; flags on the command line
    win."""
    resume: bool = False
    """``--resume``: Go on from the last checkpoint in RUN."""
    force: bool = False
    """``--force``: Replace the RUN that --out names, if there is one, once training can begin."""
    keep_checkpoints: bool = False
    """``--keep-checkpoints``: Keep RUN/checkpoints when the run is finished."""
    tensorboard: bool = False
    """``--tensorboard``: Write figures for TensorBoard into RUN."""


@dataclass(frozen=True, kw_only=True)
class ThreadsFlag:
    PANEL: ClassVar = "Device"

    threads: int | None = field(default=None, metadata={"min": 1})
    """``--threads N``: Threads that compute on a CPU. If not set: one for each core."""

    def prepare(self) -> None:
        if self.threads is not None:
            use_threads(self.threads)


@dataclass(frozen=True, kw_only=True)
class DeviceFlag(ThreadsFlag):
    PANEL: ClassVar = "Device"

    device: str = "auto"
    """Device to compute on: auto, cpu, cuda or cuda:N."""


@dataclass(frozen=True, kw_only=True)
class PickleFlag:
    PANEL: ClassVar = "Checkpoints"

    allow_pickle: bool = False
    """``--allow-pickle``: Also read weights from a pickle; nothing else in it is loaded."""


@dataclass(frozen=True, kw_only=True)
class ExamplesFlags(PickleFlag, DeviceFlag):
    PANEL: ClassVar = "Data"

    skip_bad_rows: bool = False
    """``--skip-bad-rows``: Skip rows that cannot be read, and report which."""


@dataclass(frozen=True, kw_only=True)
class AnswerFlags(ExamplesFlags):
    PANELS: ClassVar = {"Device": ("precision",)}

    precision: str = "auto"
    """Compute in float32, bfloat16, or float16 on CUDA; auto is bfloat16 on CUDA if training was
    in it, and float32 elsewhere."""

    def prepare(self) -> None:
        super().prepare()
        if self.precision == "bfloat16":
            from tidybert.inference.loading import choose_device
            from tidybert.training.precision import note_slow_bfloat16

            note_slow_bfloat16(choose_device(self.device), True, note)


@dataclass(frozen=True, kw_only=True)
class TrainedLengthFlag:
    max_seq_length: int | None = None
    """Most tokens of a text; a longer one is cut. If not set: as in training."""


@dataclass(frozen=True, kw_only=True)
class LongestLengthFlag:
    max_seq_length: int | None = None
    """Most tokens of a text; a longer one is cut. If not set: as many as the model allows."""
