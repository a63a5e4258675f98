"""A RUN as a directory: may it be written, is it finished; its arguments."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidybert.atomic_files import atomic_write_json
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.errors import TrainingError, UsageError, WeightsError, param
from tidybert.model_files import ARGUMENTS_FILE, TRIALS_FOLDER
from tidybert.training.run_checkpoints import step_directories


def is_finished(run: Path) -> bool:
    """Whether a RUN was trained to its end and its model is complete on disk."""
    directory = ModelDirectory(run)
    if directory.metadata is None:
        return False
    try:
        directory.verify()
    except WeightsError:
        # A kill came between the files of the model; the last checkpoint still has it.
        return False
    return True


def check_run(run: Path, resume: bool) -> None:
    """Raise UsageError where ``run`` cannot be written to: a file, in use, finished, forbidden."""
    there = next(each for each in (run, *run.absolute().parents) if each.exists())
    if not there.is_dir():
        which = "" if there == run else f": {there}"
        raise UsageError(f"{param('out', run)}{which} is a file; name a new directory")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UsageError(
            f"{param('out', run)}: no permission to write in {there}; name another directory"
        )
    if resume and is_finished(run):
        raise UsageError(
            f"{param('resume')}: the run in {run} is finished; give a new {param('out')} to train "
            "again"
        )
    if not resume and run.is_dir() and any(run.iterdir()):
        begun = step_directories(run) or (run / TRIALS_FOLDER).is_dir()
        unfinished = begun and not is_finished(run)
        advice = f"{param('resume')} goes on with it, or give" if unfinished else "give"
        raise UsageError(f"{param('out', run)} is not empty; {advice} a new directory")


def write_arguments(run: Path, values: Mapping[str, Any]) -> None:
    """Write arguments.json, the same names as the flags; TrainingError where it cannot be."""
    try:
        run.mkdir(parents=True, exist_ok=True)
        atomic_write_json(run / ARGUMENTS_FILE, dict(values))
    except OSError as error:
        raise TrainingError(f"{param('out', run)} cannot be written: {error}") from error
