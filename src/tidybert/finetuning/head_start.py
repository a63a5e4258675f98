"""The first weights of a new head: a linear probe of the encoder, fitted before any training.

A head drawn at random spends its first epoch learning what a regression finds in seconds, and
disturbs the encoder meanwhile.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tidybert.data.batching import Batch
from tidybert.data.features import Features
from tidybert.errors import UsageError, param
from tidybert.files.wording import count_of
from tidybert.finetuning.contrastive import train_by_contrast
from tidybert.inference.forward import run_batches
from tidybert.modeling.architectures import encoder_of
from tidybert.tasks.task import AnyTask
from tidybert.training.fine_tuning import FineTuning
from tidybert.training.frozen_states import FrozenStates
from tidybert.training.linear_probe import LinearProbe, ProbeLoss, fit_probe
from tidybert.training.loop import TrainingLoop
from tidybert.training.training_arguments import TrainingArguments

MOST_FEATURES: Final = 32_768
"""Texts, questions, sentences or windows that a probe is fitted to."""
MOST_ROWS: Final = 131_072
"""Rows of their states: 192 MiB at a width of 384, and twice that while the penalty is chosen."""


@dataclass
class ProbeMemory:
    """The probe of one encoder and its training data, for several runs on both.

    Not for an encoder of random weights: these follow from the seed, and a probe of them with it.
    """

    probe: LinearProbe | None = None


def with_head_start(arguments: TrainingArguments, task: AnyTask) -> TrainingArguments:
    """The arguments with the task's default where they name no start.

    Raises UsageError for a probe where the task has no linear layer to fit, and for contrastive
    training where each example does not have one class.
    """
    if arguments.head_start == "contrastive" and task.name != "classify":
        raise UsageError(
            f"{param('head_start', 'contrastive')} is for classify, not for {task.name}; leave "
            f"{param('head_start')} out"
        )
    if arguments.head_start == "probe" and task.head is None:
        raise UsageError(
            f"{param('head_start', 'probe')}: the head of {task.name} can only begin at random; "
            f"leave {param('head_start')} out"
        )
    default = "random" if task.head is None else "probe"
    return replace(arguments, head_start=arguments.head_start or default)


def start_with_probe(
    task: AnyTask,
    trainer: TrainingLoop[FineTuning],
    summed_loss: ProbeLoss,
    memory: ProbeMemory | None,
) -> None:
    """Set the head to a probe of the encoder, and note how good it is and how long it took.

    Contrastive training comes before it where the arguments ask for it.

    A pooler, which is between the encoder and the head, begins as one that passes [CLS] through.
    Where the probe is not better than chance, head and pooler stay as they are.
    """
    if trainer.objective.arguments.head_start == "contrastive":
        train_by_contrast(task, trainer)
        memory = None
    begin = time.perf_counter()
    trainer.objective.model.eval()
    with trainer.whole_model():
        note = _start(task, trainer.objective, summed_loss, memory or ProbeMemory())
    trainer.callbacks.tell(f"{note}; {time.perf_counter() - begin:.1f} s")


def _start(
    task: AnyTask, objective: FineTuning, summed_loss: ProbeLoss, memory: ProbeMemory
) -> str:
    """Set the weights, and return what happened."""
    model, features = objective.model, objective.features
    assert task.head is not None
    head = model.get_submodule(task.head)
    pooler = encoder_of(model).pooler
    before = None if pooler is None else {k: v.clone() for k, v in pooler.state_dict().items()}
    if pooler is not None:
        pooler.pass_through()
    chosen = _sample(task, features)
    if memory.probe is None:
        states = _states(task, model, features, chosen, objective.frozen_states)
        memory.probe = fit_probe(
            states,
            [features[number] for number in chosen],
            len(head.get_parameter("bias")),
            summed_loss,
        )
    probe = memory.probe
    losses = f"mean loss {probe.loss:.3f} on held-out examples, {probe.chance:.3f} by chance"
    if objective.arguments.head_start == "contrastive":
        losses += "; the encoder has learned from these too, so new texts lose more"
    if len(chosen) < len(features):
        losses += f"; fitted to {count_of(len(chosen), 'example')} of {len(features):,}"
    if not probe.beats_chance:
        if pooler is not None and before is not None:
            pooler.load_state_dict(before)
        return f"the new head begins at random: a probe of the encoder does not help: {losses}"
    share = task.probe_share if objective.settings.num_steps else 1.0
    with torch.no_grad():
        head.get_parameter("weight").copy_(share * probe.weight)
        head.get_parameter("bias").copy_(share * probe.bias)
    return f"the new head begins as a probe of the encoder: {losses}"


def _sample(task: AnyTask, features: Sequence[Features]) -> list[int]:
    """Numbers of at most MOST_FEATURES, with at most MOST_ROWS rows, in their order.

    The seed changes nothing.
    """
    counts = np.array([task.num_head_rows(one) for one in features])
    order = np.random.default_rng(0).permutation(len(features))[:MOST_FEATURES]
    fitting = order[np.cumsum(counts[order]) <= max(MOST_ROWS, counts[order[0]])]
    return sorted(number for number in fitting.tolist() if counts[number])


def _states(
    task: AnyTask,
    model: nn.Module,
    features: Sequence[Features],
    chosen: Sequence[int],
    frozen_states: FrozenStates | None,
) -> list[npt.NDArray[np.float32]]:
    """The rows (r, H) that the head reads of each chosen one of the features."""
    number_of = {id(features[number]): number for number in chosen}

    def read(batch: Batch) -> Tensor:
        if frozen_states is not None:
            numbers = [number_of[id(one)] for one in batch.features]
            batch = frozen_states.attach(batch, np.array(numbers))
        return task.head_inputs(model, batch)

    return run_batches(
        read,
        [features[number] for number in chosen],
        [task.num_head_rows(features[number]) for number in chosen],
        next(model.parameters()).device,
    )
