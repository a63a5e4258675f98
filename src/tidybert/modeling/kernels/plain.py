"""The plain body of each fast function here, for the reader and for tests that hold both equal.

Attention's plain body is ``modeling.attention.plain_attention``.
T rows, I inputs, O outputs, M masked words, V vocabulary, H width.
"""

import torch
from torch import Tensor
from torch.nn import functional

from tidybert.modeling.kernels.dropout import keep_mask
from tidybert.modeling.kernels.masked_lm_loss import IGNORED, SummedLoss


def dropout(hidden: Tensor, probability: float, training: bool) -> Tensor:
    """Zero elements with ``probability`` and scale the rest, so that the mean stays."""
    if not training or probability == 0.0:
        return hidden
    mask, scale = keep_mask(hidden.shape, probability)
    return hidden * mask * scale


def dropout_add(hidden: Tensor, residual: Tensor, probability: float, training: bool) -> Tensor:
    """``residual + dropout(hidden)``; shapes (T, H)."""
    return residual + dropout(hidden, probability, training)


def linear(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """(T, I) times (O, I) transposed, plus (O,): (T, O)."""
    found = hidden @ weight.T
    return found if bias is None else found + bias


def small_table_embedding(ids: Tensor, table: Tensor) -> Tensor:
    """(T, H): the rows of ``table`` (V, H) that ``ids`` (T,) name."""
    return table[ids]


def masked_lm_loss(
    hidden: Tensor, word_embeddings: Tensor, bias: Tensor, labels: Tensor
) -> SummedLoss:
    """The summed cross-entropy of (M, H) states against labels (M,), over (V, H) embeddings."""
    logits = linear(hidden, word_embeddings, bias)  # (M, V)
    total = functional.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum")
    return SummedLoss(total, torch.sum(logits.argmax(1) == labels))
