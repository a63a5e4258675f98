"""Out-of-fold probabilities: what a linear probe says of each text that it was not fitted to.

N examples, H width, C classes.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tidybert.data.features import Features
from tidybert.tasks.answers import softmax
from tidybert.tasks.task import AnyTask
from tidybert.training.linear_probe import LinearProbe, fit_probe

FOLDS: Final = 5
MOST_FITTED: Final = 32_768
"""Examples that one probe is fitted to: 48 MiB of vectors at a width of 384."""

Floats = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int64]


def fold_numbers(identities: Sequence[Hashable], labels: Indices) -> Indices:
    """(N,) the fold of each example: equal identities share one, classes are spread evenly."""
    groups: dict[Hashable, list[int]] = {}
    for number, identity in enumerate(identities):
        groups.setdefault(identity, []).append(number)
    members = list(groups.values())
    dealt: Counter[int] = Counter()
    folds = np.empty(len(labels), dtype=np.int64)
    for at in np.random.default_rng(0).permutation(len(members)):
        label = int(labels[members[at][0]])
        folds[members[at]] = (label + dealt[label]) % FOLDS
        dealt[label] += 1
    return folds


def out_of_fold(
    task: AnyTask,
    vectors: Floats,
    features: Sequence[Features],
    folds: Indices,
    advance: Callable[[int], None] = lambda num_done: None,
) -> Floats:
    """(N, C) probabilities of classes, each row from the probe of the other folds.

    Args:
        vectors: (N, H), of the frozen encoder.
        features: (N,) with labels and weights.
        folds: (N,) of ``fold_numbers``.
        advance: gets the number of examples done.
    """
    found = np.empty((len(features), len(task.names)), dtype=np.float32)
    num_done = 0
    for fold in range(FOLDS):
        held_out = np.flatnonzero(folds == fold)
        if not len(held_out):
            continue
        probe = fitted(task, vectors, features, np.flatnonzero(folds != fold))
        found[held_out] = probabilities(probe, vectors[held_out])
        num_done += len(held_out)
        advance(num_done)
    return found


def fitted(
    task: AnyTask, vectors: Floats, features: Sequence[Features], chosen: Indices
) -> LinearProbe:
    """The probe of the chosen examples, or of a sample where they are more than MOST_FITTED."""
    if len(chosen) > MOST_FITTED:
        chosen = np.sort(np.random.default_rng(0).permutation(chosen)[:MOST_FITTED])
    return fit_probe(
        [vectors[number : number + 1] for number in chosen],
        [features[number] for number in chosen],
        len(task.names),
        task.summed_loss,
    )


def probabilities(probe: LinearProbe, vectors: Floats) -> Any:
    """(N, C) of vectors (N, H)."""
    return softmax(vectors @ probe.weight.numpy().T + probe.bias.numpy())
