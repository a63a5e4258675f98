"""Trains only the rows of the word embeddings that the training data uses.

A row that no example uses gets no gradient, so AdamW keeps its moments at 0 and only decays it:
after steps 0 to s - 1 it is its first value times the product of 1 - rate * decay.  These rows are
half of a small model's parameters.  Without them the gradient, its norm, the moments and the update
take less time and memory, and no result changes.  V vocabulary, U rows in use, H width.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from tidybert.data.batching import Batch
from tidybert.data.features import Features
from tidybert.modeling.architectures import encoder_of


def used_vocabulary(model: nn.Module, features: Sequence[Features]) -> "UsedVocabulary | None":
    """The rows that the features use; None where the word embeddings are not trained."""
    embedding = encoder_of(model).word_embeddings
    return UsedVocabulary(embedding, features) if embedding.weight.requires_grad else None


class UsedVocabulary:
    """Swaps the embedding's (V, H) weight for the (U, H) rows in use during training steps.

    Args:
        embedding: the word embeddings with their weight of step 0.
        features: the training data.
    """

    def __init__(self, embedding: nn.Embedding, features: Sequence[Features]) -> None:
        self.embedding = embedding
        self.first_weight = embedding.weight.detach()
        used = np.unique(np.concatenate([one.input_ids for one in features]))
        self.used = torch.from_numpy(used.astype(np.int64))
        self.number_of = torch.zeros(embedding.num_embeddings, dtype=torch.int64)
        self.number_of[self.used] = torch.arange(len(used))
        self.used = self.used.to(embedding.weight.device)
        self.number_of = self.number_of.to(embedding.weight.device)
        self.weight = nn.Parameter(self.first_weight[self.used])
        self.narrow()

    def narrow(self) -> None:
        """Give the embedding only the rows in use."""
        self.embedding.weight = self.weight

    def renumber(self, batch: Batch) -> Batch:
        """The batch with its input_ids as numbers of rows in use."""
        rows = replace(batch.rows, input_ids=self.number_of[batch.rows.input_ids])
        return replace(batch, rows=rows)

    @contextmanager
    def whole(self, unused_factor: float) -> Iterator[None]:
        """Within the block the embedding has its (V, H) weight, unused rows times the factor.

        Changes that the block makes to rows in use, by loading a checkpoint, stay.
        """
        self.restore(unused_factor)
        try:
            yield
        finally:
            with torch.no_grad():
                self.weight.copy_(self.embedding.weight[self.used])
            self.narrow()

    def restore(self, unused_factor: float) -> None:
        """Give the embedding its (V, H) weight, until ``narrow``."""
        whole = self.first_weight * unused_factor
        whole[self.used] = self.weight.detach()
        self.embedding.weight = nn.Parameter(whole)
