"""The cross-entropy of masked words without all their logits at once.

The logits, M masked words times V in the vocabulary, are the largest tensor of a pre-training step,
and every operation up to their gradient reads and writes it.  Here some rows go all the way to
their gradients before the next begin, so no (M, V) tensor exists.  H width.
"""

import math
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from tidybert.modeling.kernels.linear import product, size_of

IGNORED: Final = -100
"""The label of a row that no loss reads."""
# Logits at once: 16 MiB on a CPU; CUDA is faster with few, large products.
_PART: Final = {"cpu": 2**22, "cuda": 2**28}
# Products of fewer rows are slow, which matters for a large vocabulary.
_LEAST_ROWS: Final = 128
# Words at once: tensor cores multiply whole tiles, and published vocabularies fill none.
_COLUMNS: Final = {"cpu": 1, "cuda": 64}


@dataclass(frozen=True)
class SummedLoss:
    """total: the sum of a batch's losses, float32.  correct: the number of right predictions."""

    total: Tensor
    correct: Tensor


def masked_lm_loss(
    hidden: Tensor, word_embeddings: Tensor, bias: Tensor, labels: Tensor
) -> SummedLoss:
    """The loss of states (M, H) for labels (M,) int64, -100 for none.

    word_embeddings (V, H) and bias (V,) make the logits.
    """
    device = hidden.device.type
    mixed = torch.is_autocast_enabled(device)
    dtype = torch.get_autocast_dtype(device) if mixed else hidden.dtype
    if device == "cpu":
        missing = size_of(len(hidden)) - len(hidden)
        labels = functional.pad(labels, (0, missing), value=IGNORED)
        hidden = functional.pad(hidden, (0, 0, 0, missing))
    found = _Loss.apply(hidden, word_embeddings, bias, labels, dtype, torch.is_grad_enabled())  # type: ignore[no-untyped-call]
    return SummedLoss(*found)


def plain_masked_lm_loss(
    hidden: Tensor, word_embeddings: Tensor, bias: Tensor, labels: Tensor
) -> SummedLoss:
    """The plain body: the summed cross-entropy, with all logits in memory at once."""
    logits = hidden @ word_embeddings.T + bias  # (M, V)
    total = functional.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum")
    return SummedLoss(total, torch.sum(logits.argmax(1) == labels))


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        word_embeddings: Tensor,
        bias: Tensor,
        labels: Tensor,
        dtype: torch.dtype,
        with_gradients: bool,
    ) -> tuple[Tensor, Tensor]:
        total = torch.zeros((), device=hidden.device)
        correct = torch.zeros((), dtype=torch.int64, device=hidden.device)
        if with_gradients:
            of_hidden, of_embeddings, of_bias = (
                torch.zeros_like(each) for each in (hidden, word_embeddings, bias)
            )
            ctx.save_for_backward(of_hidden, of_embeddings, of_bias)
        size = max(_LEAST_ROWS, _PART.get(hidden.device.type, _PART["cpu"]) // len(bias))
        if hidden.device.type == "cpu":
            # So the rows that are left for the last part are of the list too.
            size -= size % _LEAST_ROWS
        num_words = len(bias)
        missing = -num_words % _COLUMNS.get(hidden.device.type, 1)
        weight, offset = word_embeddings.to(dtype), bias.to(dtype)
        if missing:
            # No row predicts a word that is not there, and its probability is 0.
            weight = functional.pad(weight, (0, 0, 0, missing))
            offset = functional.pad(offset, (0, missing), value=-math.inf)
        with torch.autocast(hidden.device.type, enabled=False):
            for start in range(0, len(hidden), size):
                part = slice(start, start + size)
                rows, label = hidden[part].to(dtype), labels[part]
                logits = product(rows, weight, offset)
                counts = label != IGNORED
                target = label.clamp(min=0)[:, None]
                top, place = _largest(logits)
                at_label = logits.gather(1, target)[:, 0].float()
                correct += _number_right(logits, label, at_label == top, place)
                probs = torch.softmax(logits, 1, dtype=torch.float32)
                # log sum exp is the largest logit less the log of its probability (1 / V or more).
                largest = probs.amax(1) if place is None else probs.gather(1, place)[:, 0]
                losses = top - largest.log() - at_label
                total += (losses * counts).sum()
                if with_gradients:
                    # The gradient of the logits is the softmax, less 1 at the label.
                    probs.scatter_add_(1, target, probs.new_full(target.shape, -1.0))
                    gradient = probs.to(dtype)
                    # Ignored rows are set to 0 here, where they have H numbers and not V.
                    read = counts[:, None].to(dtype)
                    of_hidden[part] = product(gradient, weight.t()) * read
                    of_embeddings += product(gradient.t(), (rows * read).t())[:num_words]
                    of_bias += (counts.float() @ probs)[:num_words]
        ctx.mark_non_differentiable(correct)
        return total, correct

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, total_gradient: Tensor, _correct: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, None, None, None]:
        hidden, word_embeddings, bias = (total_gradient * each for each in ctx.saved_tensors)
        return hidden, word_embeddings, bias, None, None, None


def _largest(logits: Tensor) -> tuple[Tensor, Tensor | None]:
    """The largest of each row (m,) in float32, and its place (m, 1) where finding it costs nothing.

    On a CPU the place takes six times as long as the value.
    """
    if logits.device.type == "cpu":
        return logits.amax(1).float(), None
    top, place = logits.max(1, keepdim=True)
    return top[:, 0].float(), place


def _number_right(logits: Tensor, label: Tensor, on_top: Tensor, place: Tensor | None) -> Tensor:
    """How many rows predict their label: the first of the largest logits is there."""
    if place is not None:
        return (place[:, 0] == label).sum()
    candidates = on_top.nonzero()[:, 0]
    return (logits[candidates].argmax(1) == label[candidates]).sum()
