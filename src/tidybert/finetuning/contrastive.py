"""Contrastive training: the encoder learns which texts share a class, before a head is fitted.

The method is SetFit's (Tunstall et al. 2022, section 3): the loss of two texts is the squared
difference between the cosine of their states and 1 for one class, 0 for two.  SetFit draws pairs
and encodes both texts of each.  Here a group of texts is encoded once, and each of its pairs
counts.  G texts of a group, H width.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from tidybert.data.batching import Batch
from tidybert.data.features import Features
from tidybert.modeling.architectures import encoder_of
from tidybert.tasks.task import AnyTask
from tidybert.training.fine_tuning import FineTuning
from tidybert.training.loop import TrainingLoop
from tidybert.training.reports import StepReport, TrainingCallbacks

GROUP: Final = 16
"""Texts of a group."""
_MOST_CLASSES: Final = 8
"""Classes of a group, so that each has two texts at least."""
_GROUPS_A_STEP: Final = 2
_PASSES: Final = 4
"""How often a text is in a group, on average, between the limits that follow."""
_FEWEST_GROUPS: Final = 80
_MOST_GROUPS: Final = 320


def train_by_contrast(task: AnyTask, trainer: TrainingLoop[FineTuning]) -> None:
    """Train the encoder of a classification on groups of its training texts, and note how it went.

    The rate and the rest are the trainer's arguments, and so the seed decides the groups.  A pooler
    begins as one that passes [CLS] through.
    """
    begin = time.perf_counter()
    model, arguments = trainer.objective.model, trainer.objective.arguments
    steps: list[StepReport] = []
    with trainer.whole_model():
        pooler = encoder_of(model).pooler
        if pooler is not None:
            pooler.pass_through()
        labelled = [one for one in trainer.objective.features if one.label is not None]
        groups = draw_groups(labelled, arguments.seed)
        arguments = replace(
            arguments, num_train_epochs=1.0, max_steps=None, train_batch_size=_GROUPS_A_STEP
        )
        objective = FineTuning(model, groups, _Contrast(task), arguments)

        def step(done: StepReport) -> None:
            steps.append(done)
            trainer.callbacks.first_step(done)

        TrainingLoop(objective, callbacks=TrainingCallbacks(step=step)).train()
    trainer.callbacks.tell(
        f"the encoder learned which texts share a class, from {len(groups)} groups of up to "
        f"{GROUP}: loss {steps[0].loss:.3f} at first, {steps[-1].loss:.3f} at last; "
        f"{time.perf_counter() - begin:.1f} s"
    )


def draw_groups(features: Sequence[Features], seed: int) -> list[Features]:
    """Groups of texts, each of several classes with about equally many texts.

    A group is one Features of many sequences, and its label has the class of each.
    """
    by_class: dict[int, list[int]] = {}
    for number, one in enumerate(features):
        by_class.setdefault(int(one.label), []).append(number)
    members = list(by_class.values())
    num_classes = min(len(members), _MOST_CLASSES)
    wanted = math.ceil(_PASSES * len(features) / GROUP)
    random = np.random.default_rng(seed)
    groups = []
    for _ in range(min(max(wanted, _FEWEST_GROUPS), _MOST_GROUPS)):
        chosen = random.permutation(len(members))[:num_classes]
        drawn = [random.permutation(members[each])[: GROUP // num_classes] for each in chosen]
        groups.append(_group([features[number] for number in np.concatenate(drawn).tolist()]))
    return groups


def _group(texts: Sequence[Features]) -> Features:
    return Features(
        np.concatenate([one.input_ids for one in texts]),
        np.concatenate([one.token_type_ids for one in texts]),
        sum(one.num_tokens for one in texts),
        lengths=tuple(len(one.input_ids) for one in texts),
        label=[int(one.label) for one in texts],
    )


class _Contrast:
    """The loss of a batch of groups: the sum of theirs."""

    def __init__(self, task: AnyTask) -> None:
        self.task = task

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        states = self.task.head_inputs(model, batch).float()
        begin, total = 0, states.new_zeros(())
        for one in batch.features:
            end = begin + len(one.label)
            total = total + group_loss(states[begin:end], one.label)
            begin = end
        return total


def group_loss(states: Tensor, classes: Sequence[int]) -> Tensor:
    """The mean loss of the pairs of one class plus that of the pairs of two; a scalar.

    Args:
        states: (G, H).
        classes: (G,).
    """
    directions = functional.normalize(states, dim=1)
    first, second = torch.triu_indices(len(classes), len(classes), 1, device=states.device)
    of = torch.tensor(classes, device=states.device)
    is_alike = of[first] == of[second]
    losses = ((directions @ directions.T)[first, second] - is_alike.float()).square()
    total = states.new_zeros(())
    for chosen in (is_alike, ~is_alike):
        # A group of one class has no pairs of two.
        total = total + (losses * chosen).sum() / chosen.sum().clamp_min(1)
    return total
