"""Batches cut by a budget of tokens, and the order of the examples in each epoch."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from tidybert.data.features import Features
from tidybert.modeling.rows import Rows


@dataclass(frozen=True)
class Batch:
    """Rows of tokens and the features they came from, in the order of the sequences."""

    rows: Rows
    features: Sequence[Features]

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch with its rows on another device."""
        return self if str(device) == "cpu" else Batch(self.rows.to(device), self.features)


def collate(features: Sequence[Features]) -> Batch:
    """Lay the features' sequences end to end."""
    rows = Rows.from_flat(
        np.concatenate([one.input_ids for one in features]),
        np.concatenate([one.token_type_ids for one in features]),
        tuple(length for one in features for length in one.sequence_lengths),
    )
    return Batch(rows, features)


def epoch_order(num_examples: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """A permutation that depends on the seed and the epoch alone."""
    return np.random.default_rng([seed, epoch]).permutation(num_examples)


def cut_by_tokens(
    lengths: npt.NDArray[np.int64] | Sequence[int], tokens_per_batch: int
) -> list[npt.NDArray[np.int64]]:
    """Indices in batches of similar length, the longest first, each of at most so many tokens.

    One sequence longer than the budget makes a batch of its own.
    """
    lengths = np.asarray(lengths)
    order = np.argsort(-lengths, kind="stable")
    batches: list[npt.NDArray[np.int64]] = []
    start, tokens = 0, 0
    for place, index in enumerate(order):
        tokens += int(lengths[index])
        if tokens > tokens_per_batch and place > start:
            batches.append(order[start:place])
            start, tokens = place, int(lengths[index])
    if start < len(order):
        batches.append(order[start:])
    return batches
