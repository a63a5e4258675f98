"""Attention by the fastest body that fits the device, the dtype, dropout and the mask.

The plain body is ``modeling.attention.plain_attention``.  On CUDA in half precision the body is
PyTorch's variable-length flash attention (Dao et al. 2022, "FlashAttention").
T tokens, B sequences, H width, N heads.
"""

from collections.abc import Callable
from typing import Any, Final

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
        return varlen_first_row_attention(query, key_value, rows, num_heads)
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
    """Whether the kernel takes it: on CUDA from Ampere on, in half precision, without dropout."""
    return (
        projected.is_cuda
        and projected.dtype in (torch.float16, torch.bfloat16)
        and probability == 0.0
        and head_width % 8 == 0
        and head_width <= _WIDEST_HEAD
        and torch.cuda.get_device_capability(projected.device) >= (8, 0)
    )


def varlen_attention(
    query_key_value: Tensor, rows: Rows, num_heads: int, probability: float, causal: bool = False
) -> Tensor:
    """Context (T, H) from the joint projection (T, 3H); ``probability`` must be 0."""
    from torch.nn.attention.varlen import varlen_attn

    assert probability == 0.0
    query, key, value = query_key_value.view(rows.num_tokens, 3, num_heads, -1).unbind(1)
    longest, starts = rows.max_seqlen, rows.cu_seqlens
    # PyTorch 2.11 replaced is_causal by window_size; its __version__ is more than a plain string.
    flag: dict[str, Any] = (
        {"window_size": (-1, 0)} if torch.__version__ >= "2.11" else {"is_causal": True}
    )
    context = varlen_attn(
        query, key, value, starts, starts, longest, longest, **(flag if causal else {})
    )
    assert isinstance(context, Tensor)
    return context.reshape(rows.num_tokens, -1)


def varlen_first_row_attention(
    query: Tensor, key_value: Tensor, rows: Rows, num_heads: int
) -> Tensor:
    """Context (B, H) of first tokens from their queries (B, H) and all keys and values (T, 2H)."""
    from torch.nn.attention.varlen import varlen_attn

    size = rows.num_sequences
    key, value = key_value.view(rows.num_tokens, 2, num_heads, -1).unbind(1)
    ones = torch.arange(size + 1, dtype=torch.int32, device=query.device)
    first = query.view(size, num_heads, -1)
    context = varlen_attn(first, key, value, ones, rows.cu_seqlens, 1, rows.max_seqlen)
    assert isinstance(context, Tensor)
    return context.reshape(size, -1)
