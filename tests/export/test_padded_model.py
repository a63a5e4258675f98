"""The padded forward has the numbers of the model over rows of tokens, for every head."""

from collections.abc import Callable

import pytest
import torch
from tests.export.padded_batches import assert_equal, expected_outputs, padded_batch
from tests.relatives import RELATIVES, configured
from torch import nn

from tidybert.checkpoints.dense import Dense
from tidybert.checkpoints.sentence_form import SentenceForm
from tidybert.configuration import BertConfig
from tidybert.export.onnx_export import PaddedModel
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


@pytest.mark.parametrize(
    ("head", "pooling"),
    [(head, "cls") for head in HEADS]
    + [(head, "mean") for head in ("classify", "regress", "choose")],
)
def test_every_head_has_the_numbers_of_its_rows(
    head: str, pooling: str, tiny_config: Callable[..., BertConfig]
) -> None:
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


@pytest.mark.parametrize("kind", RELATIVES)
@pytest.mark.parametrize(
    "name", ["SequenceClassification", "TokenClassification", "QuestionAnswering", "MaskedLM"]
)
def test_a_relative_has_the_numbers_of_its_rows(kind: str, name: str) -> None:
    torch.manual_seed(3)
    config = BertConfig.from_dict(configured(kind).to_dict())
    model = heads.ARCHITECTURES[f"BertFor{name}"].built(config, 3).eval()
    ids, mask, types = padded_batch(config, 3, 17)
    types = types * config.reads_segments
    with torch.inference_mode():
        found = PaddedModel(model)(ids, mask, types if config.reads_segments else None)
    assert_equal(found, expected_outputs(model, ids, mask, types), mask)


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
