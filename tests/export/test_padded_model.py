"""The padded forward has the numbers of the model over rows of tokens, for every head."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tidybert.checkpoints.sentence_form import Dense, SentenceForm
from tidybert.configuration import BertConfig
from tidybert.export.padded_model import PaddedModel
from tidybert.modeling import heads
from tidybert.modeling.bert import BertModel
from tidybert.modeling.rows import Rows, pooled

HEADS: dict[str, Callable[[BertConfig], nn.Module]] = {
    "encoder": BertModel,
    "classify": lambda config: heads.BertForSequenceClassification(config, 3),
    "regress": lambda config: heads.BertForSequenceClassification(config, 1),
    "choose": heads.BertForMultipleChoice,
    "answer": heads.BertForQuestionAnswering,
    "tag": lambda config: heads.BertForTokenClassification(config, 5),
    "masked words": heads.BertForMaskedLM,
    "next sentence": heads.BertForNextSentencePrediction,
    "pre-training": heads.BertForPreTraining,
}


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


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("head", HEADS)
def test_every_head_has_the_numbers_of_its_rows(
    head: str, pooling: str, tiny_config: Callable[..., BertConfig]
) -> None:
    if pooling == "mean" and head not in ("classify", "regress", "choose"):
        pytest.skip("its head reads no pooled state")
    torch.manual_seed(3)
    model = HEADS[head](tiny_config().with_pooling(pooling)).eval()
    padded = PaddedModel(model)

    for size, length in ((1, 1), (3, 7), (2, 32)):
        tensors = padded_batch(model.config, size, length)
        if head == "choose":
            tensors = tuple(each.repeat(2, 1, 1) for each in tensors)
        with torch.inference_mode():
            found = padded(*tensors)

        assert_equal(found, expected_outputs(model, *tensors), tensors[1])


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
@pytest.mark.parametrize("normalize", [False, True])
def test_an_embedding_is_made_as_its_form_says(
    pooling: str, normalize: bool, tiny_config: Callable[..., BertConfig]
) -> None:
    torch.manual_seed(4)
    encoder = BertModel(tiny_config(), add_pooler=False).eval()
    dense = Dense(torch.randn(12, 16), torch.randn(12), "torch.nn.modules.activation.Tanh")
    form = SentenceForm(pooling, (dense,), normalize, truncate_dim=7)
    ids, mask, types = padded_batch(encoder.config, 3, 9)

    with torch.inference_mode():
        found = PaddedModel(encoder, form)(ids, mask, types)
        rows, _ = Rows.from_padded(ids, mask, types)
        states = encoder(rows).last_hidden_state
        vectors = states[rows.first_rows] if pooling == "cls" else pooled(states, rows, pooling)
        vectors = torch.tanh(vectors @ dense.linear.weight.T + dense.linear.bias)
        if normalize:
            vectors = vectors / vectors.norm(dim=1, keepdim=True)

    torch.testing.assert_close(found["sentence_embedding"], vectors[:, :7], atol=1e-5, rtol=0)
