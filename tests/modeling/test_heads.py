"""The head for classes and scores against transformers' own."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tidybert.configuration import BertConfig
from tidybert.modeling import BertForSequenceClassification, Rows


@pytest.mark.parametrize("num_labels", [1, 2, 5])
def test_logits_are_transformers(
    num_labels: int,
    tiny_config: Callable[..., BertConfig],
    reference: Callable[..., Any],
    copy_weights: Callable[..., Any],
) -> None:
    config = tiny_config()
    theirs = reference(config, "BertForSequenceClassification", num_labels=num_labels)
    ours = copy_weights(theirs, BertForSequenceClassification(config, num_labels))
    input_ids = torch.randint(1, config.vocab_size, (3, 8))
    mask = torch.tensor([[1] * 8, [1] * 3 + [0] * 5, [1, 0, 0, 1, 1, 0, 1, 0]])
    types = torch.randint(0, 2, (3, 8))

    with torch.no_grad():
        padded = ours(input_ids, mask, types)
        rows = ours(Rows.from_padded(input_ids, mask, types)[0])
        expected = theirs(input_ids, mask, types).logits

    assert padded.shape == (3, num_labels)
    assert torch.equal(padded, rows)
    torch.testing.assert_close(padded, expected, atol=1e-5, rtol=0)


def test_the_new_head_is_small_and_its_input_is_dropped_in_training(
    tiny_config: Callable[..., BertConfig],
) -> None:
    torch.manual_seed(0)
    config = tiny_config(hidden_dropout_prob=0.5, initializer_range=0.02)
    model = BertForSequenceClassification(config, 3)

    assert model.classifier.weight.abs().max() <= 0.04
    assert (model.classifier.bias == 0).all()
    model.eval()
    # With the encoder's own dropout off, what is left is that between pooler and classifier.
    model.training = True
    rows = Rows.from_lists([[5, 6, 7]])
    logits = torch.stack([model(rows) for _ in range(20)])
    assert logits.std(0).min() > 0
