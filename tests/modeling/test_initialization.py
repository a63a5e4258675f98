"""New weights: their distribution, and what is not drawn."""

import pytest
import torch

from tidybert.configuration import BertConfig
from tidybert.modeling import BertModel


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
