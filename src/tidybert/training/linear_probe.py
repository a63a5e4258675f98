"""A linear probe: a linear layer fitted to the states that an encoder gives before any training.

The fit minimises the task's own loss with an L2 penalty, by L-BFGS.  So it is a logistic regression
for classes, one for each of several labels, ridge regression for scores, and a softmax over the
choices of a question.  R rows, H width, C outputs.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tidybert.data.batching import Batch, collate
from tidybert.data.features import NO_EXAMPLE, Features
from tidybert.modeling.kernels.threads import map_on_threads, on_one_thread

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
_PRODUCTS_OF_ONE_THREAD: Final = 2**27
"""Of states with weights in a pass: up to so many take one thread, because several mostly wait for
each other where other programs have a core."""
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
    def is_finite(self) -> bool:
        """Whether every weight and bias is finite."""
        return bool(self.weight.isfinite().all() and self.bias.isfinite().all())

    @property
    def beats_chance(self) -> bool:
        """Whether it is finite and has a lower loss than constant outputs."""
        return self.is_finite and self.loss < self.chance

    def outputs(self, states: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """(R, C) of states (R, H)."""
        found: npt.NDArray[np.float32] = states @ self.weight.numpy().T + self.bias.numpy()
        return found


def fit_probe(
    states: Sequence[npt.NDArray[np.float32]],
    features: Sequence[Features],
    num_outputs: int,
    loss: ProbeLoss,
    advance: Callable[[int], None] = lambda _done: None,
    penalties: Sequence[float] = PENALTIES,
) -> LinearProbe:
    """Fit a layer from each feature's states (r, H) to its outputs (r, C).

    The penalty is the one with the lowest loss on held-out examples.  The same input gives the same
    bits on one machine with one number of threads.  ``advance`` gets the number of penalties that
    are done with.
    """
    whole, mean, deviation = _standardised(states, features, loss)
    penalty, held_out, chance = _choose_penalty(whole, num_outputs, penalties, advance)
    layer = _Layer(whole.rows.shape[1], num_outputs)
    layer.fit(whole, None, penalty)
    advance(len(penalties))
    weight = layer.weight / deviation
    return LinearProbe(weight, layer.bias - weight @ mean, penalty, held_out, chance)


def outputs_without(
    folds: npt.NDArray[np.int64],
    states: Sequence[npt.NDArray[np.float32]],
    features: Sequence[Features],
    num_outputs: int,
    loss: ProbeLoss,
    penalty: float,
) -> list[npt.NDArray[np.float32]]:
    """Each feature's outputs (r, C) by a layer that was fitted to the other ``folds`` (F,).

    All are fitted to those of the fold NO_EXAMPLE, which have no outputs.
    """
    whole, _, _ = _standardised(states, features, loss)

    def outputs(fold: int) -> npt.NDArray[np.float32]:
        layer, held_out = _Layer(whole.rows.shape[1], num_outputs), whole.of(folds == fold)
        layer.fit(whole.of(folds != fold), None, penalty)
        return layer.outputs(held_out.rows).numpy()

    found = [np.empty((0, num_outputs), dtype=np.float32) for _ in features]
    numbers = [fold for fold in np.unique(folds).tolist() if fold >= 0]
    for fold, rows in zip(numbers, map_on_threads(outputs, numbers), strict=True):
        chosen = np.flatnonzero(folds == fold)
        parts = np.split(rows, np.cumsum(whole.counts[chosen])[:-1])
        for number, part in zip(chosen.tolist(), parts, strict=True):
            found[number] = part
    return found


def _standardised(
    states: Sequence[npt.NDArray[np.float32]], features: Sequence[Features], loss: ProbeLoss
) -> tuple["_Part", Tensor, Tensor]:
    """All features with their states, and the mean and deviation that these had before, (H,)."""
    rows = torch.from_numpy(np.concatenate(states))
    mean, deviation = rows.mean(0), rows.std(0, correction=0)
    # A state that hardly varies would get so large a weight that the first steps would change the
    # outputs beyond all measure.
    scale = float(rows.square().mean().sqrt())
    deviation = deviation.clamp_min(_LEAST_DEVIATION * scale + 1e-12)
    rows = rows.sub_(mean).div_(deviation)
    whole = _Part(rows, np.array([len(each) for each in states]), collate(features), loss)
    return whole, mean, deviation


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
        return self.loss(layer.outputs(self.rows), self.batch)

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

    def outputs(self, rows: Tensor) -> Tensor:
        return torch.addmm(self.bias, rows, self.weight.T)

    def fit(self, part: _Part, *penalties: float | None) -> None:
        """Go on from the present weights to those of each penalty; None fits the biases alone."""
        with self.threads(part):
            for penalty in penalties:
                self._fit(part, penalty)

    def threads(self, part: _Part) -> AbstractContextManager[None]:
        """Compute in the block on as many threads as suit the part."""
        return on_one_thread(part.rows.numel() * len(self.bias) <= _PRODUCTS_OF_ONE_THREAD)

    def _fit(self, part: _Part, penalty: float | None) -> None:
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


def _choose_penalty(
    whole: _Part,
    num_outputs: int,
    penalties: Sequence[float],
    advance: Callable[[int], None],
) -> tuple[float, float, float]:
    """The penalty with the lowest held-out loss, this loss, and that of constant outputs.

    All features of an example are on one side; those of no example are always fitted to.
    """
    number_of = np.array([one.example for one in whole.batch.features])
    is_example = number_of != NO_EXAMPLE
    examples, places = np.unique(number_of[is_example], return_inverse=True)
    if len(examples) < (2 if is_example.all() else 1):
        # Nothing can be held out, so nothing says that a probe is better than chance.
        return penalties[0], float("inf"), float("inf")
    fold_of = np.full(len(number_of), NO_EXAMPLE)
    fold_of[is_example] = np.random.default_rng(0).permutation(len(examples))[places] % _FOLDS
    num_folds = min(_FOLDS, len(examples)) if len(examples) <= _FEW else 1
    parts = [(whole.of(fold_of != fold), whole.of(fold_of == fold)) for fold in range(num_folds)]
    layers = [_Layer(whole.rows.shape[1], num_outputs) for _ in parts]

    def held_out(penalty: float | None) -> float:
        def loss(fold: int) -> float:
            fitted, measured = parts[fold]
            layers[fold].fit(fitted, penalty)
            with layers[fold].threads(measured):
                return float(measured.summed_loss(layers[fold]))

        weight = sum(measured.weight for _, measured in parts)
        return sum(map_on_threads(loss, range(num_folds))) / weight

    chance = held_out(None)
    best, best_penalty = float("inf"), penalties[0]
    for number, penalty in enumerate(penalties):
        advance(number)
        found = held_out(penalty)
        if not found < best:
            break
        best, best_penalty = found, penalty
    return best_penalty, best, chance
