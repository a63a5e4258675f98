"""Less memory for more time: a layer keeps its input alone and runs again in the backward.

Chen et al. 2016, "Training deep nets with sublinear memory cost"; torch.utils.checkpoint.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def checkpoint_activations(layers: nn.ModuleList) -> None:
    """Make each layer recompute its activations in the backward, whenever it is in training."""
    for layer in layers:
        layer.forward = partial(_checkpointed, layer, layer.forward)


def _checkpointed(
    layer: nn.Module, forward: Callable[..., Tensor], hidden: Tensor, *given: Any, **named: Any
) -> Tensor:
    if not layer.training:
        return forward(hidden, *given, **named)
    found: Tensor = checkpoint(forward, hidden, *given, use_reentrant=False, **named)
    return found
