"""The objective of vectors: one loss over all vectors of a batch, in bounded memory.

Each vector's loss depends on all others, so parts of a batch have no losses that add up.  Gradient
caching (Gao et al. 2021) computes the vectors in parts without a graph, then the loss and its
gradient at the vectors, then each part again with a graph and the same dropout, which hands the
gradient on.  The gradient is that of the batch at once, to rounding.  The part that comes last in
the first pass keeps its graph, so a batch of one part is computed once.  S vectors, H width.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from tidybert.data.batching import Batch, class_order, cut_by_tokens, pieces_for_threads
from tidybert.data.features import Features
from tidybert.modeling.kernels.dropout import drawing_from
from tidybert.modeling.kernels.threads import map_on_threads
from tidybert.modeling.kernels.transfer import to_device
from tidybert.tasks.vectors import losses
from tidybert.training.fine_tuning import FineTuning
from tidybert.training.objective import Work
from tidybert.training.optimization import Gradients, add_gradients
from tidybert.training.precision import autocast
from tidybert.training.training_arguments import TrainingArguments

Vectors = Callable[[nn.Module, Batch], Tensor]
"""The vectors (S, H) of a batch, one for each of its sequences."""

VectorLoss = Callable[[Tensor, Sequence[Features]], Tensor]
"""The mean loss of a batch, a scalar, from all its vectors (S, H) in float32."""

Numbers = npt.NDArray[np.int64]


class VectorTraining(FineTuning):
    """Epochs of batches of features, whose sequences have a vector each.

    Args:
        vectors, loss: see Vectors and VectorLoss.
        classes: of each of the features; batches then hold several of each class that they hold.
        given: see FineTuning.
    """

    def __init__(
        self,
        model: nn.Module,
        features: Sequence[Features],
        vectors: Vectors,
        loss: VectorLoss,
        arguments: TrainingArguments,
        *,
        classes: Sequence[int] | None = None,
        **given: Any,
    ) -> None:
        def undivided(_model: nn.Module, _batch: Batch) -> Tensor:
            raise TypeError("the loss of vectors is that of a whole batch")

        super().__init__(model, features, undivided, arguments, **given)
        self.vectors = vectors
        self.vector_loss = loss
        self.classes = None if classes is None else np.array(classes)
        # Masks of float32 on a CPU come from a generator of their own, as long as no piece of the
        # encoder draws elsewhere; ours do not.
        self._draws = self.device.type != "cpu" or self.is_mixed

    def epoch_order(self, epoch: int) -> Numbers:
        """Random; by classes in runs, so that a batch has texts that are alike."""
        if self.classes is None:
            return super().epoch_order(epoch)
        return class_order(self.classes, self.arguments.seed, epoch)

    def _parts(self, work: Work) -> list[Numbers]:
        """As for other tasks; several parts are half as long.

        Each is computed twice whatever its length, and gradients of a whole model are beside it.
        """
        parts = super()._parts(work)
        if len(parts) < 2:
            return parts
        lengths = self.lengths[work.batches]
        cut = cut_by_tokens(lengths, self.arguments.tokens_per_batch // 2)
        return [work.batches[part] for part in cut]

    def add_gradients(self, work: Work, numbers: torch.Generator) -> Tensor:
        """Add the gradient of the batch's mean loss; (1,) that loss, float64."""
        for module in self.frozen:
            module.eval()
        return _CachedStep(self, work.batches, self._parts(work), numbers).run()


class _CachedStep:
    """One step: parts that bound memory, each of pieces that run on a thread of their own."""

    def __init__(
        self,
        objective: VectorTraining,
        chosen: Numbers,
        parts: Sequence[Numbers],
        numbers: torch.Generator,
    ) -> None:
        self.objective = objective
        self.features = [objective.features[index] for index in chosen]
        counts = np.array([len(one.sequence_lengths) for one in self.features])
        ends = np.cumsum(counts)
        rows_of = {
            index: np.arange(end - count, end)
            for index, end, count in zip(chosen.tolist(), ends, counts, strict=True)
        }
        self.num_vectors = int(ends[-1])
        lengths = objective.lengths
        #: By part, the numbers of its pieces.
        self.pieces: list[Numbers] = []
        self.parts: list[list[int]] = []
        for part in parts:
            # On another device, or in another precision, dropout draws from a generator that
            # threads would share.
            cut = [part] if objective.draws_from_default else [
                part[piece] for piece in pieces_for_threads(lengths[part])
            ]  # fmt: skip
            self.parts.append(list(range(len(self.pieces), len(self.pieces) + len(cut))))
            self.pieces += cut
        self.rows = [
            to_device(torch.from_numpy(np.concatenate([rows_of[each] for each in piece.tolist()])),
                      objective.device)
            for piece in self.pieces
        ]  # fmt: skip
        self.kept = set(self.parts[-1])
        self.seeds = torch.randint(2**63 - 1, (len(self.pieces),), generator=numbers).tolist()
        self.states: dict[int, Tensor] = {}

    def run(self) -> Tensor:
        objective = self.objective
        found = list(map_on_threads(self._first_vectors, range(len(self.pieces))))
        vectors = found[0].new_zeros(self.num_vectors, found[0].shape[1])
        for rows, each in zip(self.rows, found, strict=True):
            vectors[rows] = each.detach()
        vectors.requires_grad_()
        loss = objective.vector_loss(vectors, self.features)
        (gradient,) = torch.autograd.grad(loss, vectors)
        with_graph = {number: found[number] for number in self.kept}
        del found
        for part in reversed(self.parts):
            for gradients in map_on_threads(partial(self._hand_on, gradient, with_graph), part):
                add_gradients(objective.trained, gradients)
        return loss.detach().double().reshape(1)

    def _first_vectors(self, number: int) -> Tensor:
        if self.objective.draws_from_default:
            self.states[number] = _default_state(self.objective.device)
        with torch.set_grad_enabled(number in self.kept):
            return self._encoded(number)

    def _hand_on(self, gradient: Tensor, kept: dict[int, Tensor], number: int) -> Gradients:
        vectors = kept.pop(number, None)
        if vectors is None:
            with self._same_draws(number):
                vectors = self._encoded(number)
        trained = self.objective.trained
        return torch.autograd.grad(vectors, trained, gradient[self.rows[number]], allow_unused=True)

    def _encoded(self, number: int) -> Tensor:
        objective = self.objective
        batch = objective.batch_of(self.pieces[number])
        generator = torch.Generator().manual_seed(self.seeds[number])
        with drawing_from(generator), autocast(objective.device, objective.is_mixed):
            return objective.vectors(objective.model, batch).float()

    @contextmanager
    def _same_draws(self, number: int) -> Iterator[None]:
        """Within it, PyTorch's own generator gives what it gave in the first pass."""
        if number not in self.states:
            yield
            return
        device = self.objective.device
        after = _default_state(device)
        _set_default_state(device, self.states[number])
        yield
        _set_default_state(device, after)


def _default_state(device: torch.device) -> Tensor:
    if device.type == "cuda":
        return torch.cuda.get_rng_state(device)
    return torch.get_rng_state()


def _set_default_state(device: torch.device, state: Tensor) -> None:
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)


# The loss of vectors that learn from a teacher: from its vectors, or from its scores of pairs.
#
# B examples, S vectors, H width.

Imitation = Callable[[Tensor, Sequence[Features], Tensor, float], Tensor]
"""How far vectors (S, H) of a batch's features are from what its teacher gave; a mean.

The last argument multiplies cosines, as in the losses of labels.
"""


def of_vectors(
    vectors: Tensor, _features: Sequence[Features], taught: Tensor, scale: float
) -> Tensor:
    """From vectors (S, d): half the squared difference of the cosines of each two texts.

    So d may be another width (relational distillation, Park et al. 2019).
    """
    ours, theirs = losses.cosines_of_pairs(vectors), losses.cosines_of_pairs(taught)
    # A single text has no other one.
    return (scale * (ours - theirs)).square().sum() / (2 * max(1, len(ours)))


def of_places(
    vectors: Tensor, _features: Sequence[Features], taught: Tensor, _scale: float
) -> Tensor:
    """From vectors (S, d): the squared distance to each, so that both are in one space (LEAF).

    Vera et al. 2025, LEAF: Knowledge Distillation of Text Embedding Models.
    """
    return (vectors - taught[:, : vectors.shape[1]]).square().sum(1).mean()


def of_scores(
    vectors: Tensor, features: Sequence[Features], taught: Tensor, scale: float
) -> Tensor:
    """From a score (S - B, 1) of each example's first text with each other one, in order."""
    counts = np.array([len(one.sequence_lengths) for one in features])
    firsts = np.cumsum(counts) - counts
    others = np.setdiff1d(np.arange(len(vectors)), firsts)
    rows = [np.repeat(firsts, counts - 1), others]
    first, second = (vectors[to_device(torch.from_numpy(each), vectors.device)] for each in rows)
    cosines = functional.cosine_similarity(first, second)
    return scale * losses.uncorrelated(cosines, taught[:, 0])


@dataclass(frozen=True)
class TaughtVectors:
    """The mean loss of a batch that a teacher answered.

    The labels have 1 - ``weight`` of it times the share of the features that have one; the
    imitation has the rest.

    Args:
        of_labels: the loss of features with labels.
        imitation: see Imitation.
        weight: the teacher's share in the loss of a feature with a label.
        scale: see Imitation.
        widths: first values of the vectors that are trained too.
    """

    of_labels: VectorLoss
    imitation: Imitation
    weight: float
    scale: float
    widths: Sequence[int]

    def __call__(self, vectors: Tensor, features: Sequence[Features]) -> Tensor:
        """A scalar, from all vectors (S, H) of the batch."""
        answers = torch.from_numpy(np.concatenate([one.taught for one in features]))
        taught = to_device(answers, vectors.device)
        apart = losses.matryoshka(
            lambda each: self.imitation(each, features, taught, self.scale), vectors, self.widths
        )
        is_labelled = np.array([one.label is not None for one in features])
        share = (1.0 - self.weight) * float(is_labelled.mean())
        if not share:
            return apart
        counts = [len(one.sequence_lengths) for one in features]
        chosen = torch.from_numpy(np.flatnonzero(np.repeat(is_labelled, counts)))
        labelled = [one for one in features if one.label is not None]
        own = self.of_labels(vectors[to_device(chosen, vectors.device)], labelled)
        return (1.0 - share) * apart + share * own
