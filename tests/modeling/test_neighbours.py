"""Heads that look at neighbours before anything is learned."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tidybert.configuration import BertConfig
from tidybert.modeling import BertModel
from tidybert.modeling.neighbours import OFFSETS, attend_to_neighbours


@pytest.mark.parametrize(("size", "looking"), [("mini", 4), ("medium", 8)])
def test_heads_of_the_lower_half_look_to_the_side(size: str, looking: int) -> None:
    config = BertConfig.from_name(size, vocab_size=100)
    torch.manual_seed(0)
    model = BertModel(config).eval()
    with torch.no_grad():
        model.embeddings.word_embeddings.weight.mul_(0.05 / 0.0176)
    attend_to_neighbours(model, 0.05, seed=1)
    ids = torch.randint(100, (1, 60))
    with torch.inference_mode():
        output = model(
            ids, torch.ones_like(ids), torch.zeros_like(ids), output_attentions=True
        )
    layers = config.num_hidden_layers
    assert output.attentions is not None
    for number, probabilities in enumerate(output.attentions):
        for head in range(looking):
            share = probabilities[0, head].diagonal(OFFSETS[head]).mean()
            if number == 0:
                assert share > 0.5
            elif number < layers // 2:
                assert share > 0.25
            else:
                assert share < 0.1


def test_the_same_seed_gives_the_same_weights_and_the_rest_is_left(
    tiny_config: Callable[..., Any],
) -> None:
    states = []
    for seed in (1, 1, 2):
        torch.manual_seed(0)
        model = BertModel(tiny_config())
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        attend_to_neighbours(model, 0.02, seed=seed)
        states.append(model.state_dict())
    changed = {name for name in before if not torch.equal(before[name], states[0][name])}
    assert changed == {
        "embeddings.position_embeddings.weight",
        "encoder.layers.0.attention.query_key_value.weight",
    }
    width = before["embeddings.position_embeddings.weight"].shape[1]
    values = "encoder.layers.0.attention.query_key_value.weight"
    assert torch.equal(before[values][2 * width :], states[0][values][2 * width :])
    for name in changed:
        assert torch.equal(states[0][name], states[1][name])
        assert not torch.equal(states[0][name], states[2][name])
    spread = states[0]["embeddings.position_embeddings.weight"].std()
    assert spread == pytest.approx(0.02, rel=0.1)
