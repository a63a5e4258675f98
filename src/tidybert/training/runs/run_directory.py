"""A RUN as a directory: may it be written, has the disk room for it, is it finished."""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from torch import nn

from tidybert.checkpoints.model_card import is_own_card
from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.errors import DiskError, InUseError, UsageError, WeightsError, param
from tidybert.storage.atomic_files import atomic_write_json
from tidybert.storage.model_files import (
    ARGUMENTS_FILE,
    BAD_STEPS_FILE,
    CARD_FILE,
    CHECKPOINTS_FOLDER,
    CONFIG_FILE,
    CURVES_FILE,
    METADATA_FILE,
    METRICS_FILE,
    MLFLOW_FOLDER,
    TENSORBOARD_FOLDER,
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    TRAINING_TEXTS_FILE,
    TRIALS_FILE,
    TRIALS_FOLDER,
    VOCABULARY_FILE,
    WANDB_FOLDER,
    WEIGHTS_FILE,
)
from tidybert.storage.output_lock import contents, output_lock
from tidybert.storage.own_files import bytes_below, make_directory, remove_tree, require_room
from tidybert.training.runs.run_checkpoints import (
    checkpoints_directory,
    remove_best,
    remove_checkpoints,
)

# tidybert.json first: without it nobody takes the rest for a finished RUN.
_FILES: Final = (
    METADATA_FILE, TRAINING_TEXTS_FILE, METRICS_FILE, BAD_STEPS_FILE, CURVES_FILE, TRIALS_FILE,
    WEIGHTS_FILE, VOCABULARY_FILE, TOKENIZER_FILE, TOKENIZER_CONFIG_FILE, CONFIG_FILE,
    ARGUMENTS_FILE,
)  # fmt: skip
_FOLDERS: Final = (
    CHECKPOINTS_FOLDER, TRIALS_FOLDER, TENSORBOARD_FOLDER, WANDB_FOLDER, MLFLOW_FOLDER,
)  # fmt: skip
_SHOWS_A_RUN: Final = (ARGUMENTS_FILE, METADATA_FILE, TRIALS_FILE, *_FOLDERS)


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


def is_resumed_in_vain(run: Path, keep_checkpoints: bool) -> bool:
    """Whether a RUN is finished; if so, its checkpoints go, as a kill may have left them."""
    if not is_finished(run):
        return False
    # Another process of torchrun may be at it.
    with suppress(InUseError), output_lock(run):
        (remove_best if keep_checkpoints else remove_checkpoints)(run)
    return True


def check_run(run: Path, resume: bool, force: bool = False) -> None:
    """Raise UsageError where ``run`` cannot be written; ``force`` allows a RUN that is there."""
    if resume and force:
        raise UsageError(
            f"{param('resume')} continues a run and {param('force')} replaces it: give one"
        )
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
    if resume or not run.is_dir() or not contents(run):
        return
    is_run = any((run / name).exists() for name in _SHOWS_A_RUN)
    if not is_run:
        refused = f"; {param('force')} replaces only a RUN" if force else ""
        raise UsageError(
            f"{param('out', run)} is not empty, and holds no RUN{refused}; give a new directory"
        )
    if not force:
        advice = "" if is_finished(run) else f"{param('resume')} continues it, "
        raise UsageError(
            f"{param('out', run)} holds a RUN; {advice}{param('force')} replaces it, or give a new "
            "directory"
        )


def clear_run(run: Path) -> None:
    """Remove a RUN's files from its directory; files of others stay."""
    if is_own_card(run / CARD_FILE):
        remove_tree(run / CARD_FILE)
    for name in (*_FILES, *_FOLDERS):
        remove_tree(run / name)


@contextmanager
def owned_run(run: Path, resume: bool, force: bool = False) -> Iterator[None]:
    """Within the block this process alone writes ``run``, which ``check_run`` has passed."""
    with ExitStack() as stack:
        try:
            stack.enter_context(output_lock(run))
        except DiskError:
            # The place itself may be wrong: this message says so better.
            check_run(run, resume, force)
            raise
        check_run(run, resume, force)
        yield


def write_arguments(run: Path, values: Mapping[str, Any]) -> None:
    """Write arguments.json, the same names as the flags; DiskError where it cannot be."""
    make_directory(run)
    atomic_write_json(run / ARGUMENTS_FILE, dict(values))


def require_room_for_run(
    run: Path,
    model: nn.Module,
    *,
    moments: int,
    save_total_limit: int,
    num_saves: int,
    keeps_best: bool,
    keep_every: int | None = None,
) -> None:
    """Raise DiskError unless the disk has room for what a run writes at least.

    That is at its fullest moment: the checkpoints, the new one before an old one goes; with
    ``keeps_best`` the best weights; the model.  A checkpoint has the weights and ``moments`` bytes
    of the optimizer.  Checkpoints that are there already, in a resumed run, make room for new ones.
    """
    weights = sum(each.nbytes for each in model.state_dict().values())
    checkpoint, best = weights + moments, weights * keeps_best
    for_good = 0 if keep_every is None else num_saves // keep_every
    kept = min(max(1, save_total_limit) + for_good, num_saves)
    writing_last = min(kept + 1, num_saves) * checkpoint + best
    writing_model = kept * checkpoint + best + weights
    need = max(writing_last, writing_model) - bytes_below(checkpoints_directory(run))
    require_room(run, need, "the checkpoints and the model need")


def trained_bytes(model: nn.Module) -> int:
    """The bytes of the parameters that are trained: the size of one moment."""
    return sum(each.nbytes for each in model.parameters() if each.requires_grad)
