"""How far a model's outputs are from a teacher's (Hinton et al. 2015, section 2)."""

import torch
from torch import Tensor


def softmax_divergence(outputs: Tensor, taught: Tensor, temperature: float) -> Tensor:
    """(...) the divergence KL(teacher || model) over the last dimension, times temperature squared.

    Both are divided by the temperature first; its square keeps the size of the gradient.

    Args:
        outputs: (..., C) logits.
        taught: the same of the teacher, -inf where both are padding.
    """
    theirs = (taught / temperature).log_softmax(-1)
    ours = (outputs / temperature).log_softmax(-1)
    apart = (theirs - ours).masked_fill(taught == -torch.inf, 0.0)
    return (theirs.exp() * apart).sum(-1) * temperature**2
