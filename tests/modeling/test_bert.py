"""BertModel against transformers' own, and what rows of tokens promise."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tidybert.checkpoints.model_directory import ModelDirectory
from tidybert.checkpoints.weights import to_huggingface
from tidybert.configuration import BertConfig
from tidybert.modeling import BertModel, Rows

CONFIGURATIONS: list[dict[str, Any]] = [
    {},
    {"num_attention_heads": 1, "num_hidden_layers": 1},
    {"num_attention_heads": 8, "hidden_act": "gelu_new"},
    {"hidden_act": "relu", "layer_norm_eps": 1e-5},
    {"type_vocab_size": 3, "num_hidden_layers": 4, "hidden_act": "gelu_pytorch_tanh"},
]
# What stands where: right padding, left padding, holes, no padding.
MASK = torch.tensor(
    [
        [1, 1, 1, 1, 1, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 1, 1],
        [1, 0, 1, 1, 0, 0, 1, 0, 1],
        [1, 1, 1, 1, 1, 1, 1, 1, 1],
    ]
)


@pytest.fixture(params=CONFIGURATIONS, ids=lambda each: "-".join(map(str, each.values())) or "tiny")
def config(request: pytest.FixtureRequest, tiny_config: Callable[..., BertConfig]) -> BertConfig:
    return tiny_config(**request.param)


@pytest.fixture
def pair(
    config: BertConfig, reference: Callable[..., Any], copy_weights: Callable[..., Any]
) -> tuple[BertModel, nn.Module]:
    """Our model and transformers' with the same weights."""
    theirs = reference(config)
    return copy_weights(theirs, BertModel(config)), theirs


@pytest.fixture
def tiny(tiny_config: Callable[..., BertConfig]) -> BertModel:
    torch.manual_seed(0)
    return BertModel(tiny_config()).eval()


def padded_inputs(config: BertConfig) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    # Id 0 is left out: transformers gives the padding's embedding no gradient.
    return {
        "input_ids": torch.randint(1, config.vocab_size, MASK.shape, generator=generator),
        "attention_mask": MASK,
        "token_type_ids": torch.randint(0, config.type_vocab_size, MASK.shape, generator=generator),
    }


def random_rows(lengths: tuple[int, ...], vocab_size: int = 24) -> Rows:
    random = np.random.default_rng(sum(lengths))
    return Rows.from_lists(
        [random.integers(0, vocab_size, length) for length in lengths],
        [random.integers(0, 2, length) for length in lengths],
    )


def test_every_state_and_attention_is_transformers(pair: tuple[BertModel, nn.Module]) -> None:
    ours, theirs = pair
    inputs = padded_inputs(ours.config)
    with torch.no_grad():
        output = ours(**inputs, output_hidden_states=True, output_attentions=True)
        expected = theirs(**inputs, output_hidden_states=True, output_attentions=True)

    tokens = MASK.bool()
    layers = ours.config.num_hidden_layers
    assert (len(output.hidden_states), len(output.attentions)) == (layers + 1, layers)
    for state, their_state in zip(output.hidden_states, expected.hidden_states, strict=True):
        torch.testing.assert_close(state[tokens], their_state[tokens], atol=1e-5, rtol=0)
        assert (state[~tokens] == 0).all()
    within = tokens[:, None, :, None] & tokens[:, None, None, :]
    for probs, their_probs in zip(output.attentions, expected.attentions, strict=True):
        torch.testing.assert_close(probs, their_probs * within, atol=1e-5, rtol=0)
    assert torch.equal(output.last_hidden_state, output.hidden_states[-1])
    first = MASK[:, 0].bool()
    torch.testing.assert_close(
        output.pooler_output[first], expected.pooler_output[first], atol=1e-5, rtol=0
    )


def test_without_asking_there_are_no_states_and_the_result_is_the_same(
    pair: tuple[BertModel, nn.Module],
) -> None:
    ours, theirs = pair
    inputs = padded_inputs(ours.config)
    with torch.no_grad():
        output, expected = ours(**inputs), theirs(**inputs)

    tokens = MASK.bool()
    assert output.hidden_states is None
    assert output.attentions is None
    torch.testing.assert_close(
        output.last_hidden_state[tokens], expected.last_hidden_state[tokens], atol=1e-5, rtol=0
    )
    # transformers pools the first cell, which may be padding; we pool the first token.
    first = output.last_hidden_state[torch.arange(len(MASK)), MASK.argmax(1)]
    torch.testing.assert_close(output.pooler_output, ours.pooler(first), atol=1e-6, rtol=0)


# In float64 the two agree to its rounding, so the formulas are the same; float32 then differs by
# its own rounding, which grows with the sums over tokens and is measured against the largest entry.
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_the_gradient_of_every_parameter_is_transformers(
    pair: tuple[BertModel, nn.Module], dtype: torch.dtype, tolerance: float
) -> None:
    inputs = padded_inputs(pair[0].config)
    gradients = []
    for model in pair:
        model.to(dtype)
        output = model(**inputs)
        generator = torch.Generator().manual_seed(2)
        weights = torch.randn(output.last_hidden_state.shape, generator=generator).to(dtype)
        loss = (output.last_hidden_state * weights)[MASK.bool()].sum()
        (loss + (output.pooler_output * weights[:, 0])[MASK[:, 0].bool()].sum()).backward()
        gradients.append({name: each.grad for name, each in model.named_parameters()})

    ours, theirs = to_huggingface(gradients[0], pair[0].config), gradients[1]
    assert ours.keys() == theirs.keys()
    for name, gradient in theirs.items():
        bound = tolerance * max(1.0, float(gradient.abs().max()))
        torch.testing.assert_close(ours[name], gradient, atol=bound, rtol=0, msg=name)


def test_causal_is_transformers_decoder(
    tiny_config: Callable[..., BertConfig],
    reference: Callable[..., Any],
    copy_weights: Callable[..., Any],
) -> None:
    theirs = reference(tiny_config(), is_decoder=True)
    ours = copy_weights(theirs, BertModel(tiny_config()))
    inputs = padded_inputs(ours.config)
    with torch.no_grad():
        output = ours(**inputs, causal=True)
        probs = ours(**inputs, causal=True, output_attentions=True).attentions
        expected = theirs(**inputs, use_cache=False).last_hidden_state

    tokens = MASK.bool()
    torch.testing.assert_close(
        output.last_hidden_state[tokens], expected[tokens], atol=1e-5, rtol=0
    )
    assert all((each.triu(1) == 0).all() for each in probs)


@pytest.mark.parametrize("others", [(3,), (1, 12, 5), (9, 9), (30, 2, 17, 6)])
def test_a_result_does_not_depend_on_the_batch(tiny: BertModel, others: tuple[int, ...]) -> None:
    with torch.no_grad():
        batch = random_rows((9, *others))
        alone = Rows.from_lists([batch.input_ids[:9]], [batch.token_type_ids[:9]])
        together, single = tiny(batch), tiny(alone)

    torch.testing.assert_close(
        together.last_hidden_state[:9], single.last_hidden_state, atol=1e-5, rtol=0
    )
    torch.testing.assert_close(together.pooler_output[:1], single.pooler_output, atol=1e-5, rtol=0)


def test_the_same_batch_again_gives_the_same_bits(tiny: BertModel) -> None:
    with torch.no_grad():
        first, second = (tiny(random_rows((7, 3, 12, 1))) for _ in range(2))

    assert torch.equal(first.last_hidden_state, second.last_hidden_state)
    assert torch.equal(first.pooler_output, second.pooler_output)


def test_autocast_does_not_round_the_embeddings(tiny: BertModel) -> None:
    rows = Rows.from_lists([[1, 2, 3], [4, 5]])
    with torch.no_grad():
        expected = tiny.embeddings(rows)
        with torch.autocast("cpu", torch.bfloat16):
            found = tiny.embeddings(rows)

    assert found.dtype == torch.float32
    assert torch.equal(found, expected)


@pytest.mark.parametrize("training", [False, True])
def test_under_a_cpus_autocast_only_the_products_of_linear_layers_are_rounded(
    training: bool, tiny: BertModel
) -> None:
    """What goes through attention is float32, and states differ by those roundings alone."""
    tiny.train(training)
    rows = random_rows((7, 3, 12))
    torch.manual_seed(1)
    expected = tiny(rows, output_attentions=not training)
    torch.manual_seed(1)
    with torch.autocast("cpu", torch.bfloat16):
        found = tiny(rows, output_attentions=not training)

    assert found.last_hidden_state.dtype == torch.float32
    assert not torch.equal(found.last_hidden_state, expected.last_hidden_state)
    torch.testing.assert_close(
        found.last_hidden_state, expected.last_hidden_state, atol=0.05, rtol=0.0
    )
    for probs in found.attentions or ():
        sums = probs.sum(-1)
        torch.testing.assert_close(sums, sums.round(), atol=1e-6, rtol=0.0)


def test_training_gives_the_same_bits_for_a_seed_and_others_for_another(tiny: BertModel) -> None:
    tiny.train()

    def gradients(seed: int) -> list[Tensor]:
        torch.manual_seed(seed)
        tiny.zero_grad()
        tiny(random_rows((7, 3, 12))).pooler_output.square().sum().backward()
        return [each.grad.clone() for each in tiny.parameters()]

    first, again, other = gradients(1), gradients(1), gradients(2)

    assert all(map(torch.equal, first, again))
    assert not all(map(torch.equal, first, other))


def test_only_the_rows_asked_for_give_the_same_values_and_gradients(tiny: BertModel) -> None:
    rows = random_rows((7, 3, 12))
    chosen = torch.tensor([0, 6, 7, 21, 6])
    upstream = torch.randn(len(chosen), tiny.config.hidden_size)
    results = []
    for each in (tiny(rows).last_hidden_state[chosen], tiny(rows, output_rows=chosen)):
        hidden = each if isinstance(each, Tensor) else each.last_hidden_state
        tiny.zero_grad()
        hidden.backward(upstream)
        results.append((hidden, [p.grad for p in tiny.parameters() if p.grad is not None]))

    (expected, expected_gradients), (part, gradients) = results
    torch.testing.assert_close(part, expected, atol=1e-6, rtol=1e-5)
    for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(gradient, expected_gradient, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(tiny.pooled(rows), tiny(rows).pooler_output, atol=1e-6, rtol=1e-5)
    assert tiny(rows, output_rows=chosen).pooler_output is None


def test_parameters_have_their_published_names_and_number(tiny: BertModel) -> None:
    layer = [
        f"encoder.layers.1.{name}.{kind}"
        for name in (
            "attention.query_key_value",
            "attention.output",
            "attention_layer_norm",
            "intermediate",
            "output",
            "output_layer_norm",
        )
        for kind in ("weight", "bias")
    ]
    shapes = {name: tuple(each.shape) for name, each in tiny.state_dict().items()}

    assert list(shapes)[:5] == [
        "embeddings.word_embeddings.weight",
        "embeddings.position_embeddings.weight",
        "embeddings.token_type_embeddings.weight",
        "embeddings.layer_norm.weight",
        "embeddings.layer_norm.bias",
    ]
    assert {name for name in shapes if name.startswith("encoder.layers.1.")} == set(layer)
    assert shapes["encoder.layers.0.attention.query_key_value.weight"] == (48, 16)
    assert shapes["pooler.dense.weight"] == (16, 16)
    assert sum(each.numel() for each in tiny.parameters()) == tiny.config.num_parameters
    assert BertModel(tiny.config, add_pooler=False).pooler is None


def test_rows_left_out_cannot_be_shown(tiny: BertModel) -> None:
    rows = random_rows((3, 2))

    with pytest.raises(ValueError, match="output_rows"):
        tiny(rows, output_rows=rows.first_rows, output_hidden_states=True)


@pytest.mark.weights
def test_the_embedded_weights_give_transformers_states(minilm_directory: Path) -> None:
    import transformers

    theirs = transformers.BertModel.from_pretrained(
        minilm_directory, attn_implementation="eager"
    ).eval()
    ours = BertModel(BertConfig.from_file(minilm_directory / "config.json")).eval()
    ModelDirectory(minilm_directory).load_into(ours)
    generator = torch.Generator().manual_seed(0)
    inputs = {
        "input_ids": torch.randint(1000, 30522, (3, 40), generator=generator),
        "attention_mask": (torch.arange(40) < torch.tensor([[40], [7], [23]])).long(),
        "token_type_ids": torch.randint(0, 2, (3, 40), generator=generator),
    }
    with torch.no_grad():
        output = ours(**inputs, output_hidden_states=True, output_attentions=True)
        expected = theirs(**inputs, output_hidden_states=True, output_attentions=True)

    tokens = inputs["attention_mask"].bool()
    for state, their_state in zip(output.hidden_states, expected.hidden_states, strict=True):
        torch.testing.assert_close(state[tokens], their_state[tokens], atol=1e-5, rtol=0)
    within = tokens[:, None, :, None] & tokens[:, None, None, :]
    for probs, their_probs in zip(output.attentions, expected.attentions, strict=True):
        torch.testing.assert_close(probs, their_probs * within, atol=1e-5, rtol=0)
    torch.testing.assert_close(output.pooler_output, expected.pooler_output, atol=1e-5, rtol=0)


def test_new_weights_are_a_truncated_normal_biases_zero_and_layer_norm_one() -> None:
    torch.manual_seed(0)
    model = BertModel(BertConfig.from_name("mini", vocab_size=1000))

    for name, each in model.named_parameters():
        if name.endswith("bias"):
            assert (each == 0).all(), name
        elif "layer_norm" in name:
            assert (each == 1).all(), name
        else:
            assert each.abs().max() <= 0.04, name
    weight = model.encoder.layers[0].intermediate.weight
    # A standard normal cut at two deviations has one of 0.8796; the scale is that of the original.
    assert weight.std().item() == pytest.approx(0.02 * 0.8796, rel=0.01)
    assert weight.mean().item() == pytest.approx(0, abs=2e-4)
    assert (model.embeddings.word_embeddings.weight[0] != 0).any()
