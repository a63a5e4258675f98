"""Outputs and gradients of every head equal transformers', over sizes, lengths and batches.

The suite tries the smallest size; ``make test-parity`` tries all up to base.
"""

import os
from collections.abc import Callable
from typing import Any, Final

import pytest
import torch
from torch import Tensor, nn

from tidybert import modeling
from tidybert.configuration import BertConfig

SIZES: Final = os.environ.get("TIDYBERT_PARITY", "tiny").split(",")
SHAPES: Final = [(1, 1), (2, 2), (3, 511), (2, 512), (4096, 2)]
"""Texts, and tokens of the longest; every other text is one token shorter, where it can be."""
HEADS: Final[dict[str, tuple[str, ...]]] = {
    "BertModel": ("last_hidden_state",),
    "BertForSequenceClassification": ("logits",),
    "BertForTokenClassification": ("logits",),
    "BertForQuestionAnswering": ("start_logits", "end_logits"),
    "BertForMaskedLM": ("logits",),
    "BertForNextSentencePrediction": ("logits",),
}
"""The outputs that are compared, by the name of the class."""
LABELS: Final = 3


def pair(size: str, head: str, copy_weights: Callable[..., Any]) -> tuple[nn.Module, Any]:
    """Our model and transformers' with the same weights."""
    import transformers

    config = BertConfig.from_name(size, vocab_size=1000)
    named = {"num_labels": LABELS} if "Classification" in head else {}
    torch.manual_seed(0)
    theirs = getattr(transformers, head)(
        transformers.BertConfig(**config.to_dict(), attn_implementation="eager", **named)
    )
    return copy_weights(theirs.eval(), getattr(modeling, head)(config, **named)), theirs


def inputs_of(count: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(count + length)
    lengths = torch.full((count,), length)
    lengths[1::2] -= int(length > 1)
    mask = (torch.arange(length) < lengths[:, None]).long()
    ids = torch.randint(1, 1000, (count, length), generator=generator)
    return ids, mask, torch.randint(0, 2, (count, length), generator=generator)


def of_tokens(found: Tensor, mask: Tensor) -> Tensor:
    """The outputs of texts, or of those places that hold a token."""
    return found[mask.bool()] if found.shape[:2] == mask.shape else found


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("size", SIZES)
def test_outputs_and_gradients_are_transformers(
    size: str, head: str, copy_weights: Callable[..., Any]
) -> None:
    ours, theirs = pair(size, head, copy_weights)
    named = dict(theirs.named_parameters())
    for count, length in SHAPES:
        ids, mask, types = inputs_of(count, length)
        expected = theirs(input_ids=ids, attention_mask=mask, token_type_ids=types)
        found = ours(ids, mask, types)
        found = found.last_hidden_state if head == "BertModel" else found
        other = torch.stack([expected[name] for name in HEADS[head]], -1)
        other = other if len(HEADS[head]) > 1 else other[..., 0]
        one, other = of_tokens(found, mask), of_tokens(other, mask)
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0, msg=f"{count} of {length}")
        if count > 8:
            continue
        weights = torch.randn(one.shape, generator=torch.Generator().manual_seed(0)) / one.numel()
        for model, output in ((ours, one), (theirs, other)):
            model.zero_grad()
            (output * weights).sum().backward()
        check_gradients(ours, named)


def check_gradients(ours: nn.Module, theirs: dict[str, nn.Parameter]) -> None:
    """Every gradient differs by at most 1e-5 of the greatest one of all."""
    from tidybert.checkpoints.weights import from_huggingface

    given = {name: each.grad for name, each in theirs.items() if each.grad is not None}
    expected = from_huggingface(given, ours.config).tensors  # type: ignore[arg-type]
    greatest = max(float(each.abs().max()) for each in expected.values())
    found = {name: each.grad for name, each in ours.named_parameters() if each.grad is not None}
    assert found.keys() == expected.keys()
    for name, each in found.items():
        assert float((each - expected[name]).abs().max()) <= 1e-5 * greatest, name
