"""AdamW without decay on biases and LayerNorm, Muon, and the linear schedule (optimization.py)."""

import numpy as np
import torch
from torch import Tensor, nn

from tidybert.modeling.architectures import encoder_of
from tidybert.training.distributed import Processes
from tidybert.training.muon import MuonAdamW, muon_matrices
from tidybert.training.training_arguments import TrainingArguments


def build_optimizer(
    model: nn.Module,
    *,
    learning_rate: float,
    betas: tuple[float, float],
    epsilon: float,
    weight_decay: float,
    with_muon: bool = False,
    mixed: bool = False,
    processes: Processes | None = None,
) -> torch.optim.Optimizer:
    """AdamW over the parameters that require gradients, in two groups: decayed and not.

    Every parameter of one dimension is a bias or belongs to LayerNorm, and is not decayed.
    ``with_muon``: Muon updates the matrices of the encoder's layers, and AdamW the rest;
    ``mixed`` lets its products run in bfloat16 on a CPU, and ``processes`` share them.
    """
    stacked = muon_matrices(encoder_of(model).layers) if with_muon else []
    others = {id(matrix) for matrices, _ in stacked for matrix in matrices}
    trained = [each for each in model.parameters() if each.requires_grad and id(each) not in others]
    adamw = torch.optim.AdamW(
        [
            {"params": [each for each in trained if each.dim() > 1], "weight_decay": weight_decay},
            {"params": [each for each in trained if each.dim() <= 1], "weight_decay": 0.0},
        ],
        lr=learning_rate,
        betas=betas,
        eps=epsilon,
        fused=True,
    )
    if not with_muon:
        return adamw
    return MuonAdamW(
        stacked,
        adamw,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        mixed=mixed,
        processes=processes,
    )


def begin_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    learning_rate: float,
    *seed: int,
    default: bool = True,
) -> torch.Generator:
    """Put the model into training mode and set the learning rate.

    Returns a generator for the step's dropout on a CPU.  It follows from ``seed``, the run's seed
    and the step, so that a run can resume with the same dropout.  PyTorch's own generators begin
    with the same seed if ``default`` is set.
    """
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    number = int(np.random.SeedSequence(seed).generate_state(1)[0])
    if default:
        torch.manual_seed(number)
    model.train()
    return torch.Generator().manual_seed(number)


def update(optimizer: torch.optim.Optimizer, is_bad: Tensor) -> None:
    """Step, but leave weights and moments as they are where ``is_bad``, () bool, is true.

    The device decides, so the program does not wait for it.  Gradients are given up either way.
    """
    # PyTorch's fused AdamW reads this attribute; its own GradScaler skips steps so.
    optimizer.found_inf = is_bad.float()  # type: ignore[attr-defined]
    optimizer.step()
    optimizer.zero_grad()


def learning_rate_at(step: int, num_steps: int, arguments: TrainingArguments) -> float:
    """The rate of step 0, 1, …: a linear rise over the warm-up, then a linear fall to 0."""
    warmup = int(num_steps * arguments.warmup_proportion)
    if step < warmup:
        return arguments.peak_rate * step / warmup
    return arguments.peak_rate * (num_steps - step) / max(1, num_steps - warmup)


def decay_over(
    steps: range, num_steps: int, arguments: TrainingArguments, factor: float = 1.0
) -> float:
    """The value after some steps of a weight that was ``factor`` and has only decayed."""
    for each in steps:
        rate = learning_rate_at(each, num_steps, arguments)
        factor *= 1.0 - rate * arguments.weight_decay
    return factor
