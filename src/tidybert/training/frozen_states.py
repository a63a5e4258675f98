"""The states of frozen layers, computed once and used in every epoch.

Frozen layers run without dropout, so they give the same states each time.  A file mapped into
memory keeps them in float32, one row a token.
"""

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from tidybert.data.batching import Batch, collate, cut_by_tokens
from tidybert.data.features import Features
from tidybert.errors import UsageError, param
from tidybert.modeling.architectures import encoder_of
from tidybert.modeling.bert import BertModel
from tidybert.modeling.encoder import LowerStates

LARGEST_FILE: Final = 16 * 2**30
"""Bytes; more states than that are computed again in each step."""
_TOKENS_PER_BLOCK: Final = 4096


def freeze(model: nn.Module, num_layers: int, embeddings: bool) -> list[nn.Module]:
    """Turn off the gradients of the lowest layers, and return the frozen parts.

    The embeddings are frozen with any layer, or alone where ``embeddings`` is set.  Raises
    UsageError for more layers than the model has.
    """
    if not num_layers and not embeddings:
        return []
    encoder = encoder_of(model)
    if num_layers > len(encoder.layers):
        raise UsageError(
            f"{param('freeze_layers')} is {num_layers}, but the model has {len(encoder.layers)} "
            "layers"
        )
    frozen = [encoder.embeddings, *encoder.layers[:num_layers]]
    for module in frozen:
        module.requires_grad_(False)
    return frozen


def frozen_states(
    model: nn.Module, num_layers: int, features: Sequence[Features], note: Callable[[str], None]
) -> "FrozenStates | None":
    """The states after the frozen layers; None without any, and where they cannot be kept."""
    encoder = encoder_of(model)
    if not num_layers or not FrozenStates.fit(encoder, features):
        return None
    try:
        return FrozenStates(encoder, num_layers, features)
    except OSError as error:
        note(
            "each step computes the frozen layers' states again, which is slower: the directory "
            f"of temporary files cannot keep them ({error.strerror}); TMPDIR can name another"
        )
        return None


class FrozenStates:
    """The states after the lowest ``num_layers`` layers, by feature.

    They are computed in fixed blocks of features, when a batch first needs one of a block.  So they
    have the same bits in any order.  Raises OSError where the directory of temporary files has no
    room for them.
    """

    def __init__(self, encoder: BertModel, num_layers: int, features: Sequence[Features]) -> None:
        self.encoder = encoder
        self.num_layers = num_layers
        self.features = features
        lengths = np.array([len(one.input_ids) for one in features])
        self._ends = np.cumsum(lengths)
        self._starts = self._ends - lengths
        self._blocks = cut_by_tokens(lengths, _TOKENS_PER_BLOCK)
        self._block_of = np.empty(len(features), dtype=np.int64)
        for number, block in enumerate(self._blocks):
            self._block_of[block] = number
        self._is_done = np.zeros(len(self._blocks), dtype=np.bool_)
        shape = (int(self._ends[-1]), encoder.config.hidden_size)
        # The file is unlinked at once, so nothing is left however the process ends; the mapping
        # holds it.
        with tempfile.TemporaryFile() as file:
            # On a full disk, writing into a mapped file would end the process.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, shape[0] * shape[1] * 4)
            self._states: npt.NDArray[np.float32] = np.memmap(
                file, dtype=np.float32, mode="w+", shape=shape
            )

    @staticmethod
    def fit(encoder: BertModel, features: Sequence[Features]) -> bool:
        """Whether the states of these features are few enough to keep."""
        tokens = sum(len(one.input_ids) for one in features)
        return tokens * encoder.config.hidden_size * 4 <= LARGEST_FILE

    def attach(self, batch: Batch, numbers: npt.NDArray[Any]) -> Batch:
        """The batch with the states of its features, which have these numbers."""
        for block in np.unique(self._block_of[numbers]):
            if not self._is_done[block]:
                self._compute(int(block))
        states = np.concatenate(
            [self._states[self._starts[number] : self._ends[number]] for number in numbers]
        )
        hidden = torch.from_numpy(states).to(batch.rows.input_ids.device)
        return replace(batch, lower_states=LowerStates(hidden, self.num_layers))

    def _compute(self, block: int) -> None:
        chosen = self._blocks[block]
        device = next(self.encoder.parameters()).device
        batch = collate([self.features[index] for index in chosen]).to(device)
        with torch.no_grad():
            states = self.encoder.lowest_states(batch.rows, self.num_layers).float().cpu().numpy()
        start = 0
        for index in chosen:
            size = int(self._ends[index] - self._starts[index])
            self._states[self._starts[index] : self._ends[index]] = states[start : start + size]
            start += size
        self._is_done[block] = True
