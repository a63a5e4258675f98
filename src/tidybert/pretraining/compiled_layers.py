"""torch.compile for the part of each layer that works row by row."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


def compile_rows(layers: nn.ModuleList, backend: str | Callable[..., object] = "inductor") -> None:
    """Compile ``after_attention`` of each layer in place, one graph for each number of rows.

    Attention stays as it is: its kernels are fused already, and its shapes follow the sequences.
    """
    for layer in layers:
        row_by_row: Any = layer.after_attention
        row_by_row = torch.compile(row_by_row, dynamic=False, backend=backend)
        layer.after_attention = row_by_row
