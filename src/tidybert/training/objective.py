"""What the loop is handed: an objective says what a step is, and how it is measured.

Each objective is one small file: fine-tuning (training/fine_tuning.py), and pre-training of masked
and causal language models (pretraining/pretraining_objective.py).  A step may run several forward
passes, models beside the one it trains, and several losses: the loop only needs their gradient.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields
from typing import Any, Self

import torch
from torch import Tensor, nn

from tidybert.training.distributed import Processes
from tidybert.training.reports import Measured
from tidybert.training.runs.run_checkpoints import TrainingState


@dataclass(frozen=True)
class LoopSettings:
    """How long a run is, and when it measures, saves and stops.

    eval_steps, save_steps, logging_steps: work is due after every so many steps, and the last one.
    save_minutes: a checkpoint is also due when so many have passed since the last one.
    save_total_limit: checkpoints to keep.
    max_bad_steps: how many steps in a row may be not finite before the run stops; bad_steps.jsonl
        lists them.  None: the run stops at the first one.
    patience: how many evaluations in a row may bring no better one; None: any number.
    writes_beside: a thread writes copies of the weights while steps go on.
    times_steps: a run's seconds are those of its steps, without evaluations and checkpoints.
    command: of tidybert, which can branch the run; None: none can.
    preempt_seconds: between SIGTERM and the kill, which the run uses; None: it ends after a step.
    """

    num_steps: int
    eval_steps: int
    save_steps: int
    logging_steps: int = 10
    save_minutes: float = math.inf
    save_total_limit: int = 1
    seed: int = 42
    max_grad_norm: float = 1.0
    max_bad_steps: int | None = None
    patience: int | None = None
    writes_beside: bool = False
    times_steps: bool = False
    command: str | None = None
    preempt_seconds: float | None = None

    @classmethod
    def of(cls, arguments: object, **others: Any) -> Self:
        """What arguments have under the names of these settings, and the others."""
        names = [each.name for each in fields(cls)]
        found = {name: getattr(arguments, name) for name in names if hasattr(arguments, name)}
        return cls(**(found | others))


@dataclass(frozen=True)
class Work:
    """What one step trains on.

    batches: this process's share, as the objective made it; None passes over the data of the step.
    num_examples, num_tokens: of all processes.
    progress: the entries of the run's progress after the step, such as its place in the data; none
        where these follow from the step's number.
    epoch: passes over the data after the step; None where nobody counts them.
    """

    batches: Any
    num_examples: int
    num_tokens: int = 0
    progress: dict[str, Any] = field(default_factory=dict)
    epoch: float | None = None


class Objective:
    """One kind of training.  A subclass gives at least learning_rate, work and add_gradients.

    Args:
        model: the loop updates, saves and restores its weights; already on its device.
        optimizer: of the trained parameters.
        trained: the tensors whose gradient is clipped; by default those of the optimizer.
        processes: those that share each step.
        progress: what a run that begins has in its progress, beside what the loop counts.
    """

    advice = "Try a lower learning rate"
    """What to try where the loss is not finite."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        settings: LoopSettings,
        *,
        trained: Sequence[Tensor] | None = None,
        processes: Processes | None = None,
        progress: Mapping[str, Any] = {},
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.settings = settings
        groups = optimizer.param_groups
        self.trained = trained or [each for group in groups for each in group["params"]]
        self.processes = processes or Processes()
        self.progress = progress
        self.device = next(model.parameters()).device

    @property
    def draws_from_default(self) -> bool:
        """Whether a step draws from PyTorch's own generator, which the loop then seeds."""
        return True

    def learning_rate(self, step: int) -> float:
        """The rate of step 0, 1, …"""
        raise NotImplementedError

    def work(self, step: int, progress: Mapping[str, Any]) -> Work:
        """What step 0, 1, … trains on; it follows from the two arguments."""
        raise NotImplementedError

    def add_gradients(self, work: Work, numbers: torch.Generator) -> Tensor:
        """Add the gradient of the step's loss to ``grad`` of the trained parameters.

        ``numbers``: a CPU's generator for the step.  PyTorch's own begin with the same seed.

        Returns figures (F,) of all processes together, on the device, for ``measured``.
        """
        raise NotImplementedError

    def measured(self, step: int, work: Work, figures: Sequence[float], seconds: float) -> Measured:
        """What the figures of ``add_gradients`` say, once they are read; by default their sum.

        ``seconds``: that the step takes at the rate of the last steps.
        """
        return Measured(sum(figures))

    def evaluate(self) -> dict[str, Any] | None:
        """The metrics of the model, which is whole and in evaluation mode; None: no evaluation."""
        return None

    def is_better(self, metrics: Mapping[str, Any], best: Mapping[str, Any]) -> bool:
        """Whether metrics are better than the best so far."""
        return bool(metrics["loss"] < best["loss"])

    def is_surer(self, metrics: Mapping[str, Any], start: Mapping[str, Any]) -> bool:
        """Whether step 0 is not the best although ``is_better`` finds none better."""
        return False

    def is_other(self, step: int) -> bool:
        """Whether the losses before step 0, 1, … say nothing of those from it on."""
        return False

    def changed_before(self, changes: Sequence[Mapping[str, Any]]) -> None:
        """Take note of a resumed run's earlier settings: each change's step, and their values."""

    def in_new_order(self, progress: Mapping[str, Any]) -> dict[str, Any]:
        """The entries of the progress that differ where the next data come in a new order."""
        return {}

    def place(self, step: int, progress: Mapping[str, Any]) -> str:
        """Where the data of step 0, 1, … are, in words; ``progress`` is that before the step."""
        return f"of step {step + 1}"

    def too_little_memory(self, step: int, work: Work) -> str:
        """What to say where a step, or the evaluation after it, needs more memory than there is."""
        return "the device's memory is too small for a step"

    def at_work(self, state: TrainingState) -> AbstractContextManager[None]:
        """The block of all steps, for what must be set up before them and given back after."""
        return nullcontext()

    def whole_model(self, step: int) -> AbstractContextManager[None]:
        """Within the block the model has all parameters that it has after the training."""
        return nullcontext()
