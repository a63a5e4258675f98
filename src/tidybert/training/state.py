"""Checkpoints of a run: all that it takes to go on with the same bits.

A checkpoint is a directory checkpoints/step-N of the RUN: model.safetensors (our names),
optimizer.safetensors (Adam's two moments and step counts) and training_state.json.  The schedule,
the order of the data and the random numbers follow from the seed and the step, so the step is all
that is kept of them.  Each directory is written aside, synced and renamed.
"""

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tidybert.checkpoints.storage import (
    WEIGHTS_FILE,
    atomic_directory,
    read_tensors,
    remove_partials,
    write_tensors,
)
from tidybert.errors import TidyBertError, TrainingError

OPTIMIZER_FILE = "optimizer.safetensors"
STATE_FILE = "training_state.json"


@dataclass
class TrainingState:
    """Where a run is.

    ``fingerprint`` is of the arguments and the data; a resumed run's must be equal.
    ``best_metrics`` are those of ``best_step`` on dev, None before the first evaluation.
    """

    fingerprint: str
    step: int = 0
    best_step: int = 0
    best_metrics: dict[str, Any] | None = None
    evaluations_since_best: int = 0


def checkpoints_directory(run: Path) -> Path:
    return run / "checkpoints"


def step_directories(run: Path) -> list[Path]:
    """The checkpoints by step, the last one last."""
    found = checkpoints_directory(run).glob("step-*")
    steps = [path for path in found if path.name.removeprefix("step-").isdigit()]
    return sorted(steps, key=lambda path: int(path.name.removeprefix("step-")))


def write_checkpoint(
    run: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    state: TrainingState,
    keep: int,
) -> Path:
    """Write checkpoints/step-N, then remove all but the last ``keep`` (at least this one)."""
    target = checkpoints_directory(run) / f"step-{state.step}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_directory(target) as partial:
        write_tensors(partial / WEIGHTS_FILE, model.state_dict())
        write_tensors(partial / OPTIMIZER_FILE, _optimizer_tensors(model, optimizer))
        (partial / STATE_FILE).write_text(json.dumps(asdict(state), indent=2) + "\n")
    for old in step_directories(run)[: -max(keep, 1)]:
        shutil.rmtree(old)
    return target


def read_checkpoint(
    run: Path, model: nn.Module, optimizer: torch.optim.Optimizer, fingerprint: str
) -> tuple[TrainingState, list[str]]:
    """Put the last valid checkpoint into the model and optimizer.

    Returns the state, a fresh one where there is no checkpoint, and a line for each that was passed
    over because it cannot be read.  Raises TrainingError where the checkpoint is of other arguments
    or data.
    """
    remove_partials(checkpoints_directory(run))
    passed_over = []
    for directory in reversed(step_directories(run)):
        try:
            content: dict[str, Any] = json.loads((directory / STATE_FILE).read_text())
            state = TrainingState(**content)
            weights = read_tensors(directory / WEIGHTS_FILE)
            moments = read_tensors(directory / OPTIMIZER_FILE)
        except (OSError, ValueError, TypeError, TidyBertError) as error:
            passed_over.append(f"{directory} cannot be read and is passed over: {error}")
            continue
        if state.fingerprint != fingerprint:
            raise TrainingError(
                f"{directory} was written with other arguments, data or weights to begin with: "
                "resume with the same ones (see arguments.json), or give a new --out"
            )
        model.load_state_dict(weights)
        _load_optimizer(model, optimizer, moments)
        return state, passed_over
    return TrainingState(fingerprint), passed_over


def write_best(run: Path, model: nn.Module) -> None:
    """Keep the weights with the best dev metric so far in checkpoints/best."""
    target = checkpoints_directory(run) / "best"
    target.mkdir(parents=True, exist_ok=True)
    write_tensors(target / WEIGHTS_FILE, model.state_dict())


def read_best(run: Path) -> dict[str, Tensor]:
    return read_tensors(checkpoints_directory(run) / "best" / WEIGHTS_FILE)


def _optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    tensors = {}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"{name}/{key}"] = value
    return tensors


def _load_optimizer(
    model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]
) -> None:
    for name, parameter in model.named_parameters():
        entries = {
            key.rpartition("/")[2]: value
            for key, value in tensors.items()
            if key.rpartition("/")[0] == name
        }
        if entries:
            optimizer.state[parameter] = {
                # The fused optimizer wants its step counts on the parameter's device.
                key: value.to(parameter.device)
                for key, value in entries.items()
            }
