"""The loss of vectors that learn from a teacher: from its vectors, or from its scores of pairs.

B examples, S vectors, H width.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from tidybert.data.features import Features
from tidybert.modeling.kernels.transfer import to_device
from tidybert.tasks.vectors import losses
from tidybert.tasks.vectors.vector_training import VectorLoss

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
