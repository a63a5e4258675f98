"""Batches cut by a budget of tokens, and the order of the examples in each epoch."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from tidybert.data.features import Features

if TYPE_CHECKING:
    import torch

    from tidybert.modeling.encoder import LowerStates
    from tidybert.modeling.rows import Rows

# The gradients of each piece are as large as the trained weights.
_MOST_PIECES: Final = 4
# Smaller pieces take longer on a thread of their own.
_FEWEST_TOKENS: Final = 128


@dataclass(frozen=True)
class Batch:
    """Rows of tokens, the features they came from, and what frozen layers made of them."""

    rows: Rows
    features: Sequence[Features]
    lower_states: LowerStates | None = None

    def to(self, device: torch.device | str) -> Batch:
        """The same batch with its tensors on another device."""
        if str(device) == "cpu":
            return self
        lower_states = None if self.lower_states is None else self.lower_states.to(device)
        return replace(self, rows=self.rows.to(device), lower_states=lower_states)


def collate(features: Sequence[Features]) -> Batch:
    """Lay the features' sequences end to end."""
    from tidybert.modeling.rows import Rows

    rows = Rows.from_flat(
        np.concatenate([one.input_ids for one in features]),
        np.concatenate([one.token_type_ids for one in features]),
        tuple(length for one in features for length in one.sequence_lengths),
    )
    return Batch(rows, features)


def epoch_order(num_examples: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """A permutation that depends on the seed and the epoch alone."""
    return np.random.default_rng([seed, epoch]).permutation(num_examples)


def class_order(
    classes: npt.NDArray[np.int64], seed: int, epoch: int, run: int = 4
) -> npt.NDArray[np.int64]:
    """The same, where up to ``run`` examples of one of the classes (N,) follow each other."""
    random = np.random.default_rng([seed, epoch])
    runs = []
    for each in np.unique(classes):
        members = random.permutation(np.flatnonzero(classes == each))
        runs += np.split(members, range(run, len(members), run))
    return np.concatenate([runs[at] for at in random.permutation(len(runs))])


def cut_by_tokens(
    lengths: npt.NDArray[np.int64] | Sequence[int], tokens_per_batch: int
) -> list[npt.NDArray[np.int64]]:
    """Indices in batches of at most ``tokens_per_batch`` tokens, the longest that fit first.

    Lengths in a batch are similar, except for the shorter sequences that fill it up.  So most
    batches have exactly ``tokens_per_batch`` tokens, and one batch's memory and kernels serve the
    next.  A sequence longer than the budget is a batch of its own.
    """
    lengths = np.asarray(lengths)
    order = np.argsort(lengths, kind="stable")
    # The lengths that are left, ascending, each with its indices.
    present, begins = np.unique(lengths[order], return_index=True)
    left = list(zip(present.tolist(), np.split(order, begins)[1:], strict=True))
    batches: list[npt.NDArray[np.int64]] = []
    while left:
        chosen: list[npt.NDArray[np.int64]] = []
        room = max(tokens_per_batch, left[-1][0])
        while place := bisect_right(left, room, key=itemgetter(0)):
            length, indices = left[place - 1]
            many = room // length
            chosen.append(indices[:many])
            room -= length * len(chosen[-1])
            if many < len(indices):
                left[place - 1] = length, indices[many:]
            else:
                del left[place - 1]
        batches.append(np.concatenate(chosen))
    return batches


def cut_padded(
    lengths: npt.NDArray[np.int64] | Sequence[int], cells_per_batch: int
) -> Iterator[npt.NDArray[np.int64]]:
    """Indices in batches of neighbours in length, the longest first, for a model that pads.

    A batch has at most ``cells_per_batch`` cells, padding included, or one sequence.
    """
    order = np.argsort(-np.asarray(lengths), kind="stable")
    while len(order):
        size = max(1, cells_per_batch // int(lengths[order[0]]))
        yield order[:size]
        order = order[size:]


def share_out(lengths: npt.NDArray[np.int64], parts: int) -> list[npt.NDArray[np.int64]]:
    """Indices in at most ``parts`` batches with nearly equal numbers of tokens."""
    tokens = [(0, part) for part in range(min(parts, len(lengths)))]
    shares: list[list[int]] = [[] for _ in tokens]
    for index in np.argsort(-lengths, kind="stable").tolist():
        fewest, part = heappop(tokens)
        shares[part].append(index)
        heappush(tokens, (fewest + int(lengths[index]), part))
    return [np.array(share) for share in shares]


def pieces_for_threads(lengths: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    """Indices of the sequences, in pieces large enough for a thread each; at least one."""
    from tidybert.modeling.kernels.threads import num_threads

    worthwhile = int(lengths.sum()) // _FEWEST_TOKENS
    return share_out(lengths, max(1, min(num_threads(), _MOST_PIECES, worthwhile)))
