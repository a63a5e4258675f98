"""The rows of the word embeddings in use: batches renumbered, and the whole table put together."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tidybert.data.batching import collate
from tidybert.modeling.encoder import LowerStates
from tidybert.training.fine_tuning import UsedVocabulary


def test_a_renumbered_batch_keeps_all_else(make_features: Callable[..., Any]) -> None:
    embedding = nn.Embedding(23, 4)
    whole = embedding.weight.detach().clone()
    batch = collate(make_features(3))
    states = LowerStates(torch.zeros(batch.rows.num_tokens, 4), num_layers=1)
    batch = type(batch)(batch.rows, batch.features, states)

    found = UsedVocabulary(embedding, batch.features).renumber(batch)

    assert torch.equal(embedding(found.rows.input_ids), whole[batch.rows.input_ids])
    assert len(embedding.weight) == len(batch.rows.input_ids.unique())
    for name in ("token_type_ids", "position_ids", "cu_seqlens", "lengths"):
        assert getattr(found.rows, name) is getattr(batch.rows, name)
    assert found.features is batch.features
    assert found.lower_states is states


def test_the_whole_table_has_the_trained_rows_and_the_others_decayed(
    make_features: Callable[..., Any],
) -> None:
    embedding = nn.Embedding(23, 4)
    first = embedding.weight.detach().clone()
    vocabulary = UsedVocabulary(embedding, make_features(3))
    with torch.no_grad():
        embedding.weight.add_(1.0)

    with vocabulary.whole(unused_factor=0.5):
        whole = embedding.weight.detach().clone()

    used = vocabulary.used
    unused = [number for number in range(23) if number not in used.tolist()]
    assert torch.equal(whole[used], first[used] + 1.0)
    assert torch.equal(whole[unused], first[unused] * 0.5)
    assert len(embedding.weight) == len(used)
