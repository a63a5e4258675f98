"""Activations computed again in the backward: the same bits, and a layer's insides not kept."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tidybert.modeling import BertModel, Rows
from tidybert.training.activation_checkpoints import checkpoint_activations


def gradients(model: BertModel) -> tuple[int, list[Tensor]]:
    """How many numbers the forward keeps for the backward, and the gradients."""
    kept = 0

    def count(tensor: Tensor) -> Tensor:
        nonlocal kept
        kept += tensor.numel()
        return tensor

    torch.manual_seed(3)
    model.zero_grad()
    rows = Rows.from_lists([[1, 2, 3, 4], [5, 6, 7]])
    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        states = model(rows).last_hidden_state
    states.square().sum().backward()
    return kept, [each.grad.clone() for each in model.parameters() if each.grad is not None]


@pytest.mark.parametrize("training", [False, True])
def test_the_gradients_have_the_same_bits_and_less_is_kept_in_training(
    training: bool, tiny_config: Callable[..., Any]
) -> None:
    torch.manual_seed(0)
    model = BertModel(tiny_config(num_hidden_layers=4), add_pooler=False).train(training)
    names = list(model.state_dict())
    kept, expected = gradients(model)

    checkpoint_activations(model.layers)
    kept_then, found = gradients(model)

    assert all(map(torch.equal, found, expected))
    assert list(model.state_dict()) == names
    assert (kept_then < kept / 2) is training
