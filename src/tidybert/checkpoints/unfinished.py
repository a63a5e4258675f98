"""A RUN whose training has not ended: where it is, and the command that goes on with it."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidybert.errors import ConfigError
from tidybert.storage.json_objects import read_json_object
from tidybert.storage.model_files import (
    ARGUMENTS_FILE,
    CHECKPOINTS_FOLDER,
    CONFIG_FILE,
    RECORD,
    TRIALS_FOLDER,
    checkpoints_by_step,
)
from tidybert.storage.opening import present


def read_arguments(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments in an arguments.json, and what the RUN records beside them.

    Both are empty where there is no file.  Raises ConfigError where it cannot be read.
    """
    values = read_json_object(path) if present(path, error=ConfigError) else {}
    record = values.pop(RECORD, None)
    return values, record if isinstance(record, dict) else {}


@dataclass(frozen=True)
class Unfinished:
    """An unfinished RUN.

    step: of the last checkpoint, 0 without any.  num_steps: of the whole run, None where the RUN
    does not say.  has_trials: whether it is a search or has several seeds.
    """

    run: Path
    arguments: Mapping[str, Any]
    step: int
    num_steps: int | None
    has_trials: bool

    def place(self) -> str:
        """Where the run is, in words."""
        if self.has_trials:
            return "its trials have not all ended"
        total = "" if self.num_steps is None else f" of {self.num_steps:,}"
        return f"its last checkpoint is step {self.step:,}{total}"

    def command(self) -> str:
        """The command that goes on with the run."""
        task = self.arguments.get("task")
        is_command = task in ("pretrain", "train-lm")
        if self.has_trials or not (is_command or "train" in self.arguments):
            return "the command that began it, with --resume"
        name = task if is_command else "finetune"
        config = shlex.quote(str(self.run / ARGUMENTS_FILE))
        return f"tidybert {name} --config {config} --out {shlex.quote(str(self.run))} --resume"

    def message(self) -> str:
        """The message of a command that needs the finished model."""
        return (
            f"{self.run} is a RUN whose training has not ended: {self.place()}. Go on with: "
            f"{self.command()}"
        )


def find_unfinished(run: Path) -> Unfinished | None:
    """The step and the command of an unfinished RUN; None for any other directory."""
    if (run / CONFIG_FILE).exists():
        return None
    begun = (ARGUMENTS_FILE, CHECKPOINTS_FOLDER, TRIALS_FOLDER)
    if not any((run / name).exists() for name in begun):
        return None
    try:
        arguments, record = read_arguments(run / ARGUMENTS_FILE)
    except ConfigError:
        arguments, record = {}, {}
    total = record.get("num_steps")
    return Unfinished(
        run,
        arguments,
        step=max(checkpoints_by_step(run), default=0),
        num_steps=total if isinstance(total, int) else None,
        has_trials=(run / TRIALS_FOLDER).exists(),
    )
