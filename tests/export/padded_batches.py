"""Padded batches, and the outputs of a model's own forward under the names of an export."""

from typing import Any

import torch
from torch import Tensor, nn

from tidybert.configuration import BertConfig
from tidybert.modeling import heads
from tidybert.modeling.bert import BertModel


def padded_batch(config: BertConfig, size: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Random tokens and segments (B, S), and a mask with padding inside and at the end."""
    generator = torch.Generator().manual_seed(size * length)
    ids = torch.randint(config.vocab_size, (size, length), generator=generator)
    types = torch.randint(2, (size, length), generator=generator)
    mask = (torch.rand(size, length, generator=generator) < 0.7).long()
    mask[:, 0] = 1
    return ids, mask, types


def expected_outputs(model: nn.Module, *tensors: Tensor) -> dict[str, Tensor]:
    """The outputs of the model's own forward by the names of an export."""
    with torch.inference_mode():
        found: Any = model(*tensors)
    if isinstance(model, heads.BertForQuestionAnswering):
        start, end = found.unbind(-1)
        return {"start_logits": start, "end_logits": end}
    if isinstance(model, heads.BertForPreTraining):
        pairs = found.seq_relationship_logits
        return {"logits": found.prediction_logits, "seq_relationship_logits": pairs}
    if isinstance(model, BertModel):
        return {"last_hidden_state": found.last_hidden_state}
    return {"logits": found}


def assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor], mask: Tensor) -> None:
    """Within 1e-4 of each other; outputs per token only where there is one."""
    assert list(found) == list(expected)
    for name, each in expected.items():
        assert found[name].shape == each.shape
        per_token = each.shape[: mask.dim()] == mask.shape and name != "sentence_embedding"
        chosen = mask.bool() if per_token else ...
        torch.testing.assert_close(found[name][chosen], each[chosen], atol=1e-4, rtol=0)
