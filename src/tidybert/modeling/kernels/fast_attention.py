"""Attention by the fastest body that fits the device, the dtype, dropout and the mask.

The plain body is ``modeling.attention.plain_attention``.  On CUDA in half precision the body is
PyTorch's variable-length flash attention (Dao et al. 2022, "FlashAttention").
T tokens, B sequences, H width, N heads.
"""

from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

from tidybert.modeling.kernels.grouped_attention import (
    grouped_attention,
    grouped_first_row_attention,
)
from tidybert.modeling.kernels.linear import float32_on_a_cpu
from tidybert.modeling.kernels.trained_attention import trained_attention
from tidybert.modeling.rows import Rows

_WIDEST_HEAD: Final = 256
# Some devices have no backward with dropout for wider heads.
_WIDEST_HEAD_WITH_DROPOUT: Final = 192

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
    if fits(query, query.shape[1] // num_heads, probability):
        return varlen_first_row_attention(query, key_value, rows, num_heads, probability)
    return grouped_first_row_attention(query, key_value, rows, num_heads, probability)


def choose_body(projected: Tensor, head_width: int, probability: float, causal: bool) -> Body:
    """The body for a joint projection (T, 3H), whose heads are ``head_width`` wide."""
    if fits(projected, head_width, probability):
        return varlen_attention
    on_cpu = projected.device.type == "cpu" and projected.dtype == torch.float32
    is_trained = torch.is_grad_enabled() and projected.requires_grad
    if on_cpu and (is_trained or probability > 0.0) and not causal:
        return trained_attention
    return grouped_attention


def fits(projected: Tensor, head_width: int, probability: float) -> bool:
    """Whether the kernel takes it: on CUDA from Ampere on, in half precision."""
    widest = _WIDEST_HEAD if probability == 0.0 else _WIDEST_HEAD_WITH_DROPOUT
    return (
        projected.is_cuda
        and projected.dtype in (torch.float16, torch.bfloat16)
        and head_width % 8 == 0
        and head_width <= widest
        and torch.cuda.get_device_capability(projected.device) >= (8, 0)
    )


def varlen_attention(
    query_key_value: Tensor, rows: Rows, num_heads: int, probability: float, causal: bool = False
) -> Tensor:
    """Context (T, H) from the joint projection (T, 3H); ``probability`` drops attention weights."""
    query, key, value = query_key_value.view(rows.num_tokens, 3, num_heads, -1).unbind(1)
    starts, longest = rows.cu_seqlens, rows.max_seqlen
    context = _flash(query, key, value, starts, starts, longest, longest, probability, causal)
    return context.reshape(rows.num_tokens, -1)


def varlen_first_row_attention(
    query: Tensor, key_value: Tensor, rows: Rows, num_heads: int, probability: float
) -> Tensor:
    """Context (B, H) of first tokens from their queries (B, H) and all keys and values (T, 2H)."""
    size = rows.num_sequences
    key, value = key_value.view(rows.num_tokens, 2, num_heads, -1).unbind(1)
    ones = torch.arange(size + 1, dtype=torch.int32, device=query.device)
    first = query.view(size, num_heads, -1)
    context = _flash(
        first, key, value, ones, rows.cu_seqlens, 1, rows.max_seqlen, probability, False
    )
    return context.reshape(size, -1)


def _flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_starts: Tensor,
    key_starts: Tensor,
    longest_query: int,
    longest_key: int,
    probability: float,
    causal: bool,
) -> Tensor:
    """Context (Q, N, D) of queries (Q, N, D) over keys and values (T, N, D).

    Starts are (B + 1,) int32.  The operator is the one that torch.nn.attention.varlen calls, with
    its dropout, whose random numbers come from the device's default generator.
    """
    found: Tensor = torch.ops.aten._flash_attention_forward(
        query, key, value, query_starts, key_starts, longest_query, longest_key, probability,
        causal, False,
    )[0]  # fmt: skip
    return found
