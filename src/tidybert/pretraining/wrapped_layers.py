"""Layers changed in place, before a model is shared among processes: compiled, or recomputed."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def compile_rows(layers: nn.ModuleList, backend: str | Callable[..., object] = "inductor") -> None:
    """Compile ``after_attention`` of each layer in place, one graph for each number of rows.

    Attention stays as it is: its kernels are fused already, and its shapes follow the sequences.
    """
    # DDP would cut graphs between its buckets of gradients; these are one layer each already.
    torch._dynamo.config.optimize_ddp = False
    for layer in layers:
        row_by_row: Any = layer.after_attention
        row_by_row = torch.compile(row_by_row, dynamic=False, backend=backend)
        layer.after_attention = row_by_row


def checkpoint_activations(layers: nn.ModuleList) -> None:
    """Make each layer keep its input alone, in training, and run again in the backward.

    Chen et al. 2016, "Training deep nets with sublinear memory cost"; torch.utils.checkpoint.
    """
    for layer in layers:
        layer.forward = partial(_checkpointed, layer, layer.forward)


def _checkpointed(
    layer: nn.Module, forward: Callable[..., Tensor], hidden: Tensor, *given: Any, **named: Any
) -> Tensor:
    if not layer.training:
        return forward(hidden, *given, **named)
    found: Tensor = checkpoint(forward, hidden, *given, use_reentrant=False, **named)
    return found
