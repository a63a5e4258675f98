"""Attention by the fastest body that fits the device, the dtype, dropout and the mask.

The plain body is ``modeling.attention.plain_attention``.  T tokens, B sequences, H width, N heads.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from tidybert.modeling.kernels import varlen_attention as varlen
from tidybert.modeling.kernels.cpu_autocast import float32_on_a_cpu
from tidybert.modeling.kernels.grouped_attention import (
    grouped_attention,
    grouped_first_row_attention,
)
from tidybert.modeling.kernels.trained_attention import trained_attention
from tidybert.modeling.rows import Rows

Body = Callable[[Tensor, Rows, int, float, bool], Tensor]


@float32_on_a_cpu
def attention(
    query_key_value: Tensor, rows: Rows, num_heads: int, probability: float, causal: bool = False
) -> Tensor:
    """Context (T, H) from the joint projection (T, 3H); ``probability`` drops attention weights.

    ``causal`` lets a token see only itself and the tokens before it.
    """
    head_width = query_key_value.shape[1] // (3 * num_heads)
    body = choose_body(query_key_value, head_width, probability, causal)
    return body(query_key_value, rows, num_heads, probability, causal)


@float32_on_a_cpu
def first_row_attention(
    query: Tensor, key_value: Tensor, rows: Rows, num_heads: int, probability: float
) -> Tensor:
    """Context (B, H) of each sequence's first token alone.

    ``query`` (B, H) is of those tokens, ``key_value`` (T, 2H) of all; ``probability`` drops
    attention weights.
    """
    if varlen.fits(query, query.shape[1] // num_heads, probability):
        return varlen.varlen_first_row_attention(query, key_value, rows, num_heads)
    return grouped_first_row_attention(query, key_value, rows, num_heads, probability)


def choose_body(projected: Tensor, head_width: int, probability: float, causal: bool) -> Body:
    """The body for a joint projection (T, 3H), whose heads are ``head_width`` wide."""
    if varlen.fits(projected, head_width, probability):
        return varlen.varlen_attention
    on_cpu = projected.device.type == "cpu" and projected.dtype == torch.float32
    is_trained = torch.is_grad_enabled() and projected.requires_grad
    if on_cpu and (is_trained or probability > 0.0) and not causal:
        return trained_attention
    return grouped_attention
