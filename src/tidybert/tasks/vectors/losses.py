"""The losses of sentence vectors, over all vectors of a batch.

B examples, S vectors, C candidates, H width.  A cosine is multiplied by ``scale``, the inverse of
the temperature, before its exponential.  Each gives a mean, float32, a scalar.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from tidybert.tasks.task_options import SCALE


def info_nce(
    anchors: Tensor,
    candidates: Tensor,
    ignored: Tensor,
    *,
    scale: float = SCALE,
    both_directions: bool = False,
) -> Tensor:
    """InfoNCE with in-batch negatives (van den Oord et al. 2018; Henderson et al. 2017, 4.4)."""
    cosines = functional.normalize(anchors) @ functional.normalize(candidates).T
    right = torch.arange(len(anchors), device=anchors.device)
    logits = (scale * cosines).masked_fill(ignored, -torch.inf)
    loss = functional.cross_entropy(logits, right)
    if not both_directions:
        return loss
    return (loss + functional.cross_entropy(logits[:, : len(anchors)].T, right)) / 2


def cosent(first: Tensor, second: Tensor, scores: Tensor, *, scale: float = SCALE) -> Tensor:
    """CoSENT (Su 2022): the cosine of a pair with a higher score should be the higher one.

    ln(1 + the sum of exp(scale * (cosine of i - cosine of j)) over scores i < j).
    """
    cosines = scale * functional.cosine_similarity(first, second)
    differences = cosines[:, None] - cosines[None, :]
    wrong = differences[scores[:, None] < scores[None, :]]
    return torch.logsumexp(torch.cat((wrong.new_zeros(1), wrong)), dim=0)


def supervised_contrastive(vectors: Tensor, classes: Tensor, *, scale: float = SCALE) -> Tensor:
    """The supervised contrastive loss (Khosla et al. 2020, equation 2), 0 without equal classes.

    The mean over the vectors that share their class with another one in the batch.
    """
    directions = functional.normalize(vectors)
    itself = torch.eye(len(vectors), dtype=torch.bool, device=vectors.device)
    logits = (scale * directions @ directions.T).masked_fill(itself, -torch.inf)
    alike = (classes[:, None] == classes[None, :]) & ~itself
    log_shares = (logits - logits.logsumexp(1, keepdim=True)).masked_fill(~alike, 0.0)
    counts = alike.sum(1)
    means = log_shares.sum(1) / counts.clamp_min(1)
    return -means.sum() / (counts > 0).sum().clamp_min(1)


def uncorrelated(cosines: Tensor, taught: Tensor) -> Tensor:
    """1 - Pearson's correlation of cosines and a teacher's values (Huang et al. 2022, DIST).

    So the values may have any unit.  1, without a gradient, where all of them are equal.
    """
    return 1 - functional.cosine_similarity(cosines - cosines.mean(), taught - taught.mean(), dim=0)


def cosines_of_pairs(vectors: Tensor) -> Tensor:
    """(S (S - 1) / 2,) the cosine of each two of the vectors (S, H)."""
    directions = functional.normalize(vectors)
    first, second = torch.triu_indices(len(vectors), len(vectors), 1, device=vectors.device)
    return (directions @ directions.T)[first, second]


def matryoshka(loss: Callable[[Tensor], Tensor], vectors: Tensor, widths: Sequence[int]) -> Tensor:
    """The loss of vectors (S, H), plus those of their first values (Kusupati et al. 2022).

    ``widths``: how many of them; a width of H or more adds nothing.
    """
    narrow = [vectors[:, :width] for width in widths if width < vectors.shape[1]]
    return torch.stack([loss(each) for each in (vectors, *narrow)]).sum()
