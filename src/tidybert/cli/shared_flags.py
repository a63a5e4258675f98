"""Flags and arguments that several commands share, each declared once."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from tidybert.cli.config_file import take_config
from tidybert.cli.output import choose_notes, note
from tidybert.errors import UsageError
from tidybert.storage.output_lock import output_lock
from tidybert.system.cores import use_threads
from tidybert.training.runs.run_options import DeviceOption, PickleOption, RowsOption, RunOptions

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
        metavar="CORPUS",
        help="Files, folders or globs: text with a blank line between documents, JSON lines, "
        "Parquet; plain, .gz, .xz or .zst.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class NotesFlags:
    """The flags of every command: ``takes`` adds them."""

    quiet: bool = False
    """``--quiet``: Show only results and errors."""
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
    """Fraction of the documents kept apart to measure on."""


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


def values_of(given: Any, *groups: type) -> dict[str, Any]:
    """The values of the flags that dataclasses declare, by name."""
    return {each.name: getattr(given, each.name) for group in groups for each in fields(group)}


@dataclass(frozen=True, kw_only=True)
class RunFlags(RunOptions):
    PANEL: ClassVar = "Checkpoints"

    config: Path | None = field(default=None, metadata={"callback": take_config})
    """``--config FILE``: Repeat the run whose arguments.json this is; flags on the command line
    win."""
    log_to: list[str] | None = None
    """``--log-to TRACKER``: Also log figures to tensorboard, wandb, mlflow, or PACKAGE:function.
    Give it again for more."""
    # Its help is that of RunOptions; the shell needs one.
    out: Path = field()

    @property
    def is_done(self) -> bool:
        """Whether the run to resume is finished, which a note says."""
        from tidybert.training.runs.run_directory import is_resumed_in_vain

        if not (self.resume and is_resumed_in_vain(self.out, self.keep_checkpoints)):
            return False
        note(f"the run in {self.out} is finished: there is nothing to resume")
        return True


@dataclass(frozen=True, kw_only=True)
class ThreadsFlag:
    PANEL: ClassVar = "Device"

    threads: int | None = field(default=None, metadata={"min": 1})
    """``--threads N``: Threads that compute on a CPU. If not set: one for each core."""

    def prepare(self) -> None:
        if self.threads is not None:
            use_threads(self.threads)


@dataclass(frozen=True, kw_only=True)
class DeviceFlag(ThreadsFlag, DeviceOption):
    pass


PickleFlag = PickleOption


@dataclass(frozen=True, kw_only=True)
class ExamplesFlags(RowsOption, PickleOption, DeviceFlag):
    pass


@dataclass(frozen=True, kw_only=True)
class AnswerFlags(ExamplesFlags):
    PANELS: ClassVar[dict[str, tuple[str, ...]]] = {"Device": ("precision",)}

    precision: str = "auto"
    """Compute in float32, bfloat16, int8 (CPU) or float16 (CUDA). auto: bfloat16 on CUDA after
    training in it, else float32."""

    def prepare(self) -> None:
        super().prepare()
        if self.precision == "bfloat16":
            from tidybert.inference.loading import choose_device
            from tidybert.training.precision import note_slow_bfloat16

            note_slow_bfloat16(choose_device(self.device), True, note)


@dataclass(frozen=True, kw_only=True)
class ClusterFlags:
    PANEL: ClassVar = "Cluster"

    cluster: str | None = None
    """``--cluster ADDRESS``: Work on a Ray cluster; local starts one here. FILE may be a folder or
    a pattern, and --out is a folder."""
    cluster_workers: int | None = field(default=None, metadata={"min": 1})
    """``--cluster-workers N``: Processes that work on a cluster. If not set: one for each CPU, or
    each GPU with --device cuda."""
    on_error: str = "stop"
    """``--on-error stop|continue``: On a cluster, stop at a file that fails, or do the other files
    first."""


@dataclass(frozen=True, kw_only=True)
class TrainedLengthFlag:
    max_seq_length: int | None = None
    """Most tokens of a text; a longer one is cut. If not set: as in training."""


@dataclass(frozen=True, kw_only=True)
class LongestLengthFlag:
    max_seq_length: int | None = None
    """Most tokens of a text; a longer one is cut. If not set: as many as the model allows."""
