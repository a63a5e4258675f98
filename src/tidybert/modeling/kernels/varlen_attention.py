"""Variable-length flash attention, which PyTorch has on CUDA in half precision.

Dao et al. 2022, "FlashAttention"; torch.nn.attention.varlen.  T tokens, B sequences, H width.
"""

from typing import Any, Final

import torch
from torch import Tensor

from tidybert.modeling.rows import Rows

_WIDEST_HEAD: Final = 256


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
