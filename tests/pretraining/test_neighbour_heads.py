"""Heads that look at neighbours before anything is learned."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from tidybert.configuration import BertConfig
from tidybert.modeling import BertModel
from tidybert.pretraining.start import OFFSETS, attend_to_neighbours


@pytest.mark.parametrize(("num_heads", "looking"), [(4, 4), (12, 8)])
def test_heads_look_to_the_side(num_heads: int, looking: int) -> None:
    config = BertConfig.from_name("mini", vocab_size=100)
    config = replace(config, hidden_size=64 * num_heads, num_attention_heads=num_heads)
    others = range(looking, num_heads)
    torch.manual_seed(0)
    model = BertModel(config).eval()
    with torch.no_grad():
        model.embeddings.word_embeddings.weight.mul_(0.05 / 0.0176)
    attend_to_neighbours(model, 0.05, seed=1)
    ids = torch.randint(100, (1, 60))
    with torch.inference_mode():
        output = model(ids, torch.ones_like(ids), torch.zeros_like(ids), output_attentions=True)
    assert output.attentions is not None
    for number, probabilities in enumerate(output.attentions):
        for head in range(looking):
            share = probabilities[0, head].diagonal(OFFSETS[head]).mean()
            # What earlier layers add is noise to the later ones.
            assert share > (0.5 if number == 0 else 0.25)
    # By chance it would be a sixtieth.
    rest = [each[0, head].diagonal(-1).mean() for each in output.attentions for head in others]
    assert all(share < 0.1 for share in rest)


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
        *(f"encoder.layers.{n}.attention.query_key_value.weight" for n in range(2)),
    }
    width = before["embeddings.position_embeddings.weight"].shape[1]
    values = "encoder.layers.0.attention.query_key_value.weight"
    assert torch.equal(before[values][2 * width :], states[0][values][2 * width :])
    for name in changed:
        assert torch.equal(states[0][name], states[1][name])
        assert not torch.equal(states[0][name], states[2][name])
    spread = states[0]["embeddings.position_embeddings.weight"].std()
    assert spread == pytest.approx(0.02, rel=0.1)
