"""The encoder in int8 and bfloat16: BertLayer's states, alone and in company, and the rest."""

import copy
import pickle
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import nn

from tidybert.configuration import BertConfig
from tidybert.modeling.attention import PassOptions
from tidybert.modeling.bert import BertModel
from tidybert.modeling.encoder import ACTIVATIONS, BertLayer
from tidybert.modeling.heads import BertForSequenceClassification
from tidybert.modeling.kernels import answer_layers as module
from tidybert.modeling.kernels import linear as linear_module
from tidybert.modeling.kernels.answer_layers import (
    AnswerLayer,
    BFloat16Layer,
    use_bfloat16,
    use_int8,
)
from tidybert.modeling.kernels.linear import (
    has_bfloat16_products,
    largest_weight,
    plain_bfloat16_linear,
    plain_int8_linear,
)
from tidybert.modeling.rows import Rows

needs_int8 = pytest.mark.skipif(not largest_weight(), reason="no exact 8-bit products here")
KINDS = [
    pytest.param(AnswerLayer, marks=needs_int8, id="int8"),
    pytest.param(
        BFloat16Layer,
        marks=pytest.mark.skipif(not has_bfloat16_products(), reason="no products of bfloat16"),
        id="bfloat16",
    ),
]
CONFIG = BertConfig(
    vocab_size=100,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=128,
    max_position_embeddings=512,
)


def rows_of(lengths: Sequence[int]) -> Rows:
    return Rows.from_lists([(np.arange(length) * 7 + length) % 100 for length in lengths])


def classifier() -> BertForSequenceClassification:
    torch.manual_seed(0)
    model = BertForSequenceClassification(CONFIG, num_labels=3).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.add_(0.2 * torch.randn_like(parameter) * ("embeddings" not in name))
    return model


def in_precision(model: nn.Module, kind: type[AnswerLayer]) -> None:
    if kind is BFloat16Layer:
        assert use_bfloat16(model)
    else:
        assert use_int8(model) is None


def error_of_a_product() -> float:
    """Of the norm, in int8: 1.0%, and 1.6% where weights have seven bits; bfloat16 has less."""
    generator = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(64, 64, generator=generator) for _ in range(2))
    exact = hidden @ weight.T
    rounded = plain_int8_linear(hidden, weight, torch.zeros(64), largest_weight() or 127)
    return float((rounded - exact).norm() / exact.norm())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("asked", ["all", "first", "some"])
@torch.inference_mode()
def test_a_layer_is_near_its_plain_body(asked: str, causal: bool, kind: type[AnswerLayer]) -> None:
    plain = classifier().bert.layers[0]
    rows = rows_of([70, 70, 9, 1, 33])
    hidden = torch.randn(rows.num_tokens, 64, generator=torch.Generator().manual_seed(1))
    output_rows = {"all": None, "first": rows.first_rows, "some": torch.tensor([3, 80, 141])}[asked]
    options = PassOptions(output_rows, causal)

    found = kind(plain)(hidden, rows, options).float()

    expected = plain(hidden, rows, options)
    assert found.shape == expected.shape
    # Three products follow each other.
    assert (found - expected).norm() < 3 * error_of_a_product() * expected.norm()
    assert not torch.equal(found, expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("threads", [1, 2])
@torch.inference_mode()
def test_a_text_has_the_same_bits_alone_and_in_company(
    threads: int, kind: type[AnswerLayer]
) -> None:
    model = classifier()
    in_precision(model, kind)
    lengths = [1, 2, 3, 8, 17, 64, 127, 128, 129, 300, 511, 512, 17, 3]
    rows = rows_of(lengths)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        logits, states = model(rows), model.bert(rows).last_hidden_state
        for number, length in enumerate(lengths):
            alone = rows_of([length])
            end = int(rows.cu_seqlens[number + 1])
            assert torch.equal(model(alone), logits[number : number + 1])
            assert torch.equal(model.bert(alone).last_hidden_state, states[end - length : end])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("kind", KINDS)
def test_the_float32_weights_are_gone_and_the_state_says_which_they_were(
    kind: type[AnswerLayer],
) -> None:
    model, other = classifier(), classifier()
    with torch.no_grad():
        other.bert.layers[1].output.weight[0, 0] += 1.0
    weights = sum(each.nbytes for each in model.bert.layers.parameters())

    in_precision(model, kind)
    in_precision(other, kind)

    left = sum(each.nbytes for each in model.bert.layers.parameters())
    assert left < 0.02 * weights
    assert not torch.equal(*(each.bert.layers[1].digests for each in (model, other)))
    assert torch.equal(*(each.bert.layers[0].digests for each in (model, other)))


@pytest.mark.skipif(not has_bfloat16_products(), reason="no products of bfloat16")
@torch.inference_mode()
def test_a_copy_in_bfloat16_has_the_same_bits() -> None:
    model, rows = classifier(), rows_of([5, 130])
    assert use_bfloat16(model)

    copies = copy.deepcopy(model), pickle.loads(pickle.dumps(model))

    assert all(torch.equal(each(rows), model(rows)) for each in copies)


@pytest.mark.skipif(not has_bfloat16_products(), reason="no products of bfloat16")
@pytest.mark.parametrize("name", ACTIVATIONS)
@torch.inference_mode()
def test_a_function_inside_a_product_is_the_function(name: str) -> None:
    layer = classifier().bert.layers[0]
    layer.activation = ACTIVATIONS[name]
    hidden = torch.randn(19, 64)
    rounded = BFloat16Layer(layer)

    found = rounded._expanded(hidden.bfloat16())

    expected = layer.activation(
        plain_bfloat16_linear(hidden, layer.intermediate.weight, layer.intermediate.bias).float()
    )
    torch.testing.assert_close(found.float(), expected, rtol=2**-6, atol=2**-6)
    layer.activation = torch.tanh
    expected = torch.tanh(rounded.intermediate(hidden.bfloat16()))
    assert torch.equal(BFloat16Layer(layer)._expanded(hidden.bfloat16()), expected)


@pytest.mark.parametrize("lacks", ["operators", "processor"])
def test_without_products_of_bfloat16_the_layers_stay(
    lacks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "has_bfloat16_products", has_bfloat16_products.__wrapped__)
    if lacks == "operators":
        monkeypatch.setattr(linear_module, "_PACK", None)
    else:
        monkeypatch.setattr("platform.machine", lambda: "aarch64")
    model = classifier()

    assert not use_bfloat16(model)

    assert all(isinstance(layer, BertLayer) for layer in model.bert.layers)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("huge", "the layers have weights beyond 1,000,000"),
        ("nan", "the layers have weights beyond 1,000,000"),
        ("odd", "the layers' widths are not multiples of 4"),
        ("processor", "this processor, or this build of PyTorch, has no exact products"),
    ],
)
def test_what_does_not_fit_stays_in_float32(
    broken: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = classifier().bert
    monkeypatch.setattr(module, "largest_weight", lambda: 0 if broken == "processor" else 127)
    if broken == "odd":
        odd = {"hidden_size": 6, "num_attention_heads": 2, "intermediate_size": 10}
        model = BertModel(BertConfig(**{**CONFIG.to_dict(), **odd}))
    elif broken != "processor":
        with torch.no_grad():
            model.layers[1].output.weight[2, 3] = 2e6 if broken == "huge" else torch.nan

    obstacle = use_int8(model)

    assert obstacle is not None
    assert obstacle.startswith(said)
    assert not any(isinstance(layer, AnswerLayer) for layer in model.layers)
