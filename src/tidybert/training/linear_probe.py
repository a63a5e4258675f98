"""A linear probe: a linear layer fitted to the states that an encoder gives before any training.

The fit minimises the task's own loss with an L2 penalty, by L-BFGS.  So it is a logistic regression
for classes, one for each of several labels, ridge regression for scores, and a softmax over the
choices of a question.  R rows, H width, C outputs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tidybert.data.batching import Batch, collate
from tidybert.data.features import Features

ProbeLoss = Callable[[Tensor, Batch], Tensor]
"""The weighted sum of the losses of outputs (R, C), float32, the rows of the batch's features."""

PENALTIES: Final = tuple(10.0 ** (1 - 2 * step / 3) for step in range(10))
"""Of the mean loss over standardised states; the fit goes down them while held-out loss falls."""
_FOLDS: Final = 4
_FEW: Final = 200
"""Up to this many examples each fold is held out once; of more, one fold alone."""
_ITERATIONS: Final = 25
_TOLERANCE: Final = 1e-4
"""A fit ends where an iteration lowers the mean loss by less."""
_LEAST_DEVIATION: Final = 0.1
"""Of a standardised state, as a share of the states' root mean square."""


@dataclass(frozen=True)
class LinearProbe:
    """A fitted layer, and its mean loss on examples that were held out while it was chosen.

    weight: (C, H).  bias: (C,).  chance: the held-out loss of the best constant outputs.
    """

    weight: Tensor
    bias: Tensor
    penalty: float
    loss: float
    chance: float

    @property
    def beats_chance(self) -> bool:
        """Whether it is better than constant outputs, and all its values are finite."""
        is_finite = bool(self.weight.isfinite().all() and self.bias.isfinite().all())
        return is_finite and self.loss < self.chance


def fit_probe(
    states: Sequence[npt.NDArray[np.float32]],
    features: Sequence[Features],
    num_outputs: int,
    loss: ProbeLoss,
) -> LinearProbe:
    """Fit a layer from each feature's states (r, H) to its outputs (r, C).

    The penalty is the one with the lowest loss on held-out examples.  The same input gives the same
    bits on one machine with one number of threads.
    """
    rows = torch.from_numpy(np.concatenate(states))
    mean, deviation = rows.mean(0), rows.std(0, correction=0)
    # A state that hardly varies would get so large a weight that the first steps would change the
    # outputs beyond all measure.
    scale = float(rows.square().mean().sqrt())
    deviation = deviation.clamp_min(_LEAST_DEVIATION * scale + 1e-12)
    rows = rows.sub_(mean).div_(deviation)
    whole = _Part(rows, np.array([len(each) for each in states]), collate(features), loss)
    penalty, held_out, chance = _choose_penalty(whole, num_outputs)
    layer = _Layer(rows.shape[1], num_outputs)
    layer.fit(whole, None)
    layer.fit(whole, penalty)
    weight = layer.weight / deviation
    return LinearProbe(weight, layer.bias - weight @ mean, penalty, held_out, chance)


@dataclass(frozen=True)
class _Part:
    """Some features, and their rows of standardised states (R, H), ``counts`` of each."""

    rows: Tensor
    counts: npt.NDArray[np.int64]
    batch: Batch
    loss: ProbeLoss

    @cached_property
    def weight(self) -> float:
        return sum(one.weight for one in self.batch.features)

    def summed_loss(self, layer: "_Layer") -> Tensor:
        return self.loss(torch.addmm(layer.bias, self.rows, layer.weight.T), self.batch)

    def of(self, chosen: npt.NDArray[np.bool_]) -> "_Part":
        """The part of the features that a mask chooses."""
        rows = self.rows[torch.from_numpy(np.repeat(chosen, self.counts))]
        features = [self.batch.features[number] for number in np.flatnonzero(chosen).tolist()]
        return _Part(rows, self.counts[chosen], collate(features), self.loss)


class _Layer:
    """The weights (C, H) and biases (C,) while they are fitted."""

    def __init__(self, width: int, num_outputs: int) -> None:
        self.weight = torch.zeros(num_outputs, width)
        self.bias = torch.zeros(num_outputs)

    def fit(self, part: _Part, penalty: float | None) -> None:
        """Go on from the present weights to those of this penalty; None fits the biases alone."""
        trained = [self.bias] if penalty is None else [self.weight, self.bias]
        for each in trained:
            each.requires_grad_()
        optimizer = torch.optim.LBFGS(
            trained,
            max_iter=_ITERATIONS,
            tolerance_change=_TOLERANCE,
            line_search_fn="strong_wolfe",
        )

        def objective() -> Tensor:
            optimizer.zero_grad()
            found = part.summed_loss(self) / part.weight
            if penalty is not None:
                found = found + 0.5 * penalty * self.weight.square().sum()
            found.backward()  # type: ignore[no-untyped-call]
            return found

        optimizer.step(objective)  # type: ignore[no-untyped-call]
        for each in trained:
            each.requires_grad_(False)
            each.grad = None


def _choose_penalty(whole: _Part, num_outputs: int) -> tuple[float, float, float]:
    """The penalty with the lowest held-out loss, this loss, and that of constant outputs.

    All features of an example are on one side.
    """
    examples, number_of = np.unique(
        [one.example for one in whole.batch.features], return_inverse=True
    )
    if len(examples) == 1:
        # Nothing can be held out, so nothing says that a probe is better than chance.
        return PENALTIES[0], float("inf"), float("inf")
    fold_of = np.random.default_rng(0).permutation(len(examples))[number_of] % _FOLDS
    num_folds = min(_FOLDS, len(examples)) if len(examples) <= _FEW else 1
    parts = [(whole.of(fold_of != fold), whole.of(fold_of == fold)) for fold in range(num_folds)]
    layers = [_Layer(whole.rows.shape[1], num_outputs) for _ in parts]

    def held_out(penalty: float | None) -> float:
        total = weight = 0.0
        for layer, (fitted, measured) in zip(layers, parts, strict=True):
            layer.fit(fitted, penalty)
            total += float(measured.summed_loss(layer))
            weight += measured.weight
        return total / weight

    chance = held_out(None)
    best, best_penalty = float("inf"), PENALTIES[0]
    for penalty in PENALTIES:
        found = held_out(penalty)
        if not found < best:
            break
        best, best_penalty = found, penalty
    return best_penalty, best, chance
