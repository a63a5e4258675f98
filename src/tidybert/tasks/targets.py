"""Target: one answer to one input as a number, the score that attributions explain.

The score of a class is the log-odds of its probability, ln(p / (1 - p)).  A shift of all logits
does not change it, and it does not flatten where the model is sure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidybert.data.features import Features
from tidybert.tokenization.tokenizer import Encoding

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Explained:
    """One input whose answer is explained.

    Args:
        logits: (R, C) the outputs for it.
        label: the name of an answer; None for the model's own.
        piece: of a model that tags, the first piece of the word whose tag is explained.
    """

    logits: Tensor
    encoding: Encoding
    features: Features
    label: str | None
    piece: int | None


@dataclass(frozen=True)
class Target:
    """One answer to one input.

    Args:
        label: the answer.
        positions: of the pieces whose logits the score reads; empty where it reads the sequence's.
        score: (B, P, C) logits of B inputs, P being 1 without positions, to scores (B,).
    """

    label: str
    positions: tuple[int, ...]
    score: Callable[[Tensor], Tensor]


def class_target(
    label: str, chosen: int, temperature: float, positions: tuple[int, ...] = ()
) -> Target:
    """The log-odds of one class, from the logits of one position or of the sequence."""
    return Target(label, positions, lambda each: log_odds(each[:, 0] / temperature, chosen))


def log_odds(logits: Tensor, chosen: int) -> Tensor:
    """(B,) ln(p / (1 - p)) of one class from logits (B, C)."""
    import torch

    others = torch.cat((logits[:, :chosen], logits[:, chosen + 1 :]), dim=1)
    return logits[:, chosen] - others.logsumexp(1)
