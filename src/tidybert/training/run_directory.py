"""A RUN as a directory: may it be written, is it finished; its arguments."""

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from tidybert.atomic_files import atomic_write_json, make_directory
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.errors import DiskError, UsageError, WeightsError, param
from tidybert.model_files import ARGUMENTS_FILE, TRIALS_FOLDER
from tidybert.output_lock import contents, output_lock
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
    """Raise UsageError where ``run`` cannot be written: a file, not empty, finished, forbidden."""
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
    if not resume and run.is_dir() and contents(run):
        begun = step_directories(run) or (run / TRIALS_FOLDER).is_dir()
        unfinished = begun and not is_finished(run)
        advice = f"{param('resume')} goes on with it, or give" if unfinished else "give"
        raise UsageError(f"{param('out', run)} is not empty; {advice} a new directory")


@contextmanager
def owned_run(run: Path, resume: bool) -> Iterator[None]:
    """Within the block this process alone writes ``run``, which ``check_run`` has passed.

    Raises as ``check_run``, and InUseError where another process writes it.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(output_lock(run))
        except DiskError:
            # The place itself may be wrong: this message says so better.
            check_run(run, resume)
            raise
        check_run(run, resume)
        yield


P = ParamSpec("P")
T = TypeVar("T")


def owning_run(function: Callable[P, T]) -> Callable[P, T]:
    """The function, in a block of ``owned_run`` for its arguments ``run`` and ``resume``.

    Without a ``run`` there is nothing to own.  The first of several ``processes`` owns it.
    """
    signature = inspect.signature(function)

    @wraps(function)
    def owning(*args: P.args, **kwargs: P.kwargs) -> T:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        run, processes = given.arguments["run"], given.arguments.get("processes")
        if run is None or not (processes is None or processes.is_first):
            return function(*args, **kwargs)
        with owned_run(Path(run), given.arguments["resume"]):
            return function(*args, **kwargs)

    return owning


def write_arguments(run: Path, values: Mapping[str, Any]) -> None:
    """Write arguments.json, the same names as the flags; DiskError where it cannot be."""
    make_directory(run)
    atomic_write_json(run / ARGUMENTS_FILE, dict(values))
