"""The left-to-right transformer: what its tokens see, its formula, and its cache."""

import math

import numpy as np
import numpy.typing as npt
import pytest
import torch

from tidybert.configuration import LANGUAGE_MODELS, BertConfig, CausalConfig
from tidybert.errors import ConfigError
from tidybert.modeling import BertModel
from tidybert.modeling.architectures import CausalModel, KeyValueCache, sinusoids
from tidybert.modeling.heads import CausalLM
from tidybert.modeling.kernels.masked_lm_loss import plain_masked_lm_loss
from tidybert.modeling.rows import Rows

SIZES = {
    "vocab_size": 11, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3,
    "intermediate_size": 20, "max_position_embeddings": 16, "initializer_range": 0.1,
}  # fmt: skip
IDS = [3, 1, 4, 1, 5, 9, 2]


def make_model(positions: str = "sinusoidal") -> CausalLM:
    torch.manual_seed(0)
    config = CausalConfig(**SIZES, hidden_act="relu", positions=positions)  # type: ignore[arg-type]
    model = CausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # Fresh biases and LayerNorms are 0 and 1, which would hide a mistake in them.
            if parameter is not model.bert.embeddings.position_embeddings.weight:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def logits(model: CausalLM, *sequences: list[int]) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(Rows.from_lists(sequences))
    return found


def test_positions_are_those_of_the_paper() -> None:
    """PE(pos, 2i) = sin(pos / 10000^(2i/H)), PE(pos, 2i + 1) = cos of the same."""
    found = sinusoids(40, 7)

    for position in (0, 1, 39):
        for column in range(7):
            angle = position / 10_000 ** (2 * (column // 2) / 7)
            wave = math.cos(angle) if column % 2 else math.sin(angle)
            assert found[position, column].item() == pytest.approx(wave, abs=1e-6)


def test_only_learned_positions_are_trained() -> None:
    for positions in ("sinusoidal", "learned"):
        model = make_model(positions)
        weight = model.bert.embeddings.position_embeddings.weight
        assert torch.equal(weight, sinusoids(16, 12))

        model(Rows.from_lists([IDS])).sum().backward()

        assert (weight.grad is not None) == (positions == "learned")


def test_no_output_depends_on_a_later_token() -> None:
    model = make_model()
    before = logits(model, IDS, [7, 7, 7])

    for place in range(len(IDS)):
        other = [*IDS[:place], 8, *IDS[place + 1 :]]
        after = logits(model, other, [7, 7, 7])
        assert torch.equal(after[:place], before[:place])
        assert not torch.allclose(after[place:7], before[place:7])
        # The next sequence begins without any of this one.
        torch.testing.assert_close(after[7:], before[7:])


def test_outputs_of_bert_depend_on_later_tokens() -> None:
    torch.manual_seed(0)
    bert = BertModel(BertConfig(**SIZES)).eval()  # type: ignore[arg-type]

    first = bert(Rows.from_lists([IDS])).last_hidden_state
    second = bert(Rows.from_lists([[*IDS[:-1], 8]])).last_hidden_state

    assert not torch.allclose(first[:-1], second[:-1])


Array = npt.NDArray[np.float64]


def numpy_logits(model: CausalLM, ids: list[int]) -> Array:
    """The forward pass written out in NumPy, in float64."""
    of = {name: each.double().numpy() for name, each in model.state_dict().items()}
    words = of["bert.embeddings.word_embeddings.weight"]
    length, width = len(ids), words.shape[1]

    def normed(hidden: Array, name: str) -> Array:
        centred = hidden - hidden.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
        return scaled * of[f"{name}.weight"] + of[f"{name}.bias"]

    def dense(hidden: Array, name: str) -> Array:
        return hidden @ of[f"{name}.weight"].T + of[f"{name}.bias"]

    places = np.arange(length)[:, None] / 10_000 ** (np.arange(0, width, 2) / width)
    waves = np.stack([np.sin(places), np.cos(places)], -1).reshape(length, width)
    hidden = normed(np.sqrt(width) * words[ids] + waves, "bert.embeddings.layer_norm")
    for number in range(2):
        layer = f"bert.encoder.layers.{number}"
        joint = dense(hidden, f"{layer}.attention.query_key_value")
        query, key, value = joint.reshape(length, 3, 3, width // 3).transpose(1, 2, 0, 3)
        scores = query @ key.transpose(0, 2, 1) / np.sqrt(width // 3)
        scores += np.triu(np.full((length, length), -np.inf), 1)
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        probs = powers / powers.sum(-1, keepdims=True)
        context = (probs @ value).transpose(1, 0, 2).reshape(length, width)
        hidden = hidden + dense(context, f"{layer}.attention.output")
        hidden = normed(hidden, f"{layer}.attention_layer_norm")
        inner = np.maximum(dense(hidden, f"{layer}.intermediate"), 0)
        hidden = normed(hidden + dense(inner, f"{layer}.output"), f"{layer}.output_layer_norm")
    found: Array = hidden @ words.T + of["output_bias"]
    return found


def test_it_is_the_plain_forward() -> None:
    model = make_model()

    np.testing.assert_allclose(logits(model, IDS).numpy(), numpy_logits(model, IDS), atol=1e-5)


@torch.no_grad()
def test_a_cache_changes_nothing() -> None:
    model = make_model()
    encoder = model.bert
    assert isinstance(encoder, CausalModel)
    whole = encoder(Rows.from_lists([IDS])).last_hidden_state
    cache = KeyValueCache()

    parts = [encoder.extend(torch.tensor(part), cache) for part in (IDS[:3], *zip(IDS[3:]))]

    assert [len(part) for part in parts] == [3, 1, 1, 1, 1]
    torch.testing.assert_close(torch.cat(parts), whole, atol=1e-5, rtol=1e-5)
    assert cache.num_tokens == len(IDS)
    cache.num_tokens = 16
    with pytest.raises(ValueError, match="position_ids go from 16 to 16"):
        encoder.extend(torch.tensor([1]), cache)


def test_the_loss_is_that_of_the_logits() -> None:
    model, labels = make_model(), torch.tensor([1, 4, 1, 5, 9, 2, -100])
    rows = Rows.from_lists([IDS])

    found = model(rows, masked_lm_positions=torch.arange(7), masked_lm_labels=labels)
    hidden, words = model.bert(rows).last_hidden_state, model.bert.word_embeddings.weight
    expected = plain_masked_lm_loss(hidden, words, model.output_bias, labels)

    torch.testing.assert_close(found.total, expected.total)
    assert found.correct == expected.correct


def test_a_configuration_names_the_model() -> None:
    original = CausalConfig(**LANGUAGE_MODELS["transformer"])
    sizes = original.hidden_size, original.num_attention_heads, original.num_hidden_layers
    assert sizes == (512, 8, 6)
    config = make_model().config

    assert config.num_parameters == sum(each.numel() for each in make_model().bert.parameters())
    assert BertConfig.from_dict({**config.to_dict(), "model_type": "causal-lm"}) == config
    for changed in ({"positions": "none"}, {"type_vocab_size": 2}):
        with pytest.raises(ConfigError, match=next(iter(changed))):
            BertConfig.from_dict({**config.to_dict(), "model_type": "causal-lm", **changed})
    with pytest.raises(ConfigError, match="unknown key 'positions'"):
        BertConfig.from_dict(config.to_dict())
    with pytest.raises(ConfigError, match="reads both sides"):
        config.with_pooling("cls")
