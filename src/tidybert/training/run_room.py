"""Whether the disk has room for a run, asked before its first step."""

from pathlib import Path

from torch import nn

from tidybert.storage.disk_errors import require_room
from tidybert.training.run_checkpoints import checkpoints_directory


def require_room_for_run(
    run: Path,
    model: nn.Module,
    *,
    moments: int,
    save_total_limit: int,
    num_saves: int,
    keeps_best: bool,
) -> None:
    """Raise DiskError unless the disk has room for what a run writes at least.

    That is at its fullest moment: the checkpoints, the new one before an old one goes; with
    ``keeps_best`` the best weights; the model.  A checkpoint has the weights and ``moments`` bytes
    of the optimizer.  Checkpoints that are there already, in a resumed run, make room for new ones.
    """
    weights = sum(each.nbytes for each in model.state_dict().values())
    checkpoint, best = weights + moments, weights * keeps_best
    kept = min(max(1, save_total_limit), num_saves)
    writing_last = min(kept + 1, num_saves) * checkpoint + best
    writing_model = kept * checkpoint + best + weights
    there = sum(
        each.stat().st_size for each in checkpoints_directory(run).rglob("*") if each.is_file()
    )
    need = max(writing_last, writing_model) - there
    require_room(run, need, "the checkpoints and the model need")


def trained_bytes(model: nn.Module) -> int:
    """The bytes of the parameters that are trained: the size of one moment."""
    return sum(each.nbytes for each in model.parameters() if each.requires_grad)
