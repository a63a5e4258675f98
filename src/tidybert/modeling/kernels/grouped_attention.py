"""Attention over groups of sequences of similar length, by PyTorch's scaled_dot_product_attention.

b sequences, s their longest length, N heads, D head width, T tokens, H width.
"""

import math
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from tidybert.modeling.kernels.dropout import dropout
from tidybert.modeling.kernels.grouping import Group, are_in_order, groups_of
from tidybert.modeling.rows import Rows

GROUP_COST: Final = 1024
"""How many padded cells of scores a head cost as much time as a further group.

Measured with 12 heads of 32 and 4 of 64 on batches of short and long texts, with dropout and
without, forward and backward: 256 to 2048 are equal within noise; 4096 takes half as long again
where most texts are of one length and would then be padded.
"""
# Forward alone, on a CPU, only equal lengths go together: batches of similar lengths, as inference
# has, take a fifth less time without padding and the copies that it needs, and batches of 32
# sentences in a file's order about as much.
_GROUP_COST_FORWARD: Final = 0


def grouped_attention(
    query_key_value: Tensor, rows: Rows, num_heads: int, probability: float, causal: bool = False
) -> Tensor:
    """Context (T, H) from the joint projection (T, 3H); ``probability`` drops attention weights."""
    groups = groups_of(rows, _group_cost(query_key_value))
    parts = []
    for group in groups:
        block = _fused(group.heads(query_key_value, 3, num_heads), group, probability, causal)
        parts.append(group.tokens(block.transpose(1, 2)))
    if are_in_order(rows):
        return torch.cat(parts)
    context = query_key_value.new_empty(query_key_value.shape[0], query_key_value.shape[1] // 3)
    return context.index_copy(0, torch.cat([group.rows for group in groups]), torch.cat(parts))


def grouped_first_row_attention(
    query: Tensor, key_value: Tensor, rows: Rows, num_heads: int, probability: float
) -> Tensor:
    """Context (B, H) of first tokens from their queries (B, H) and all keys and values (T, 2H)."""
    width = query.shape[1] // num_heads
    groups = groups_of(rows, _group_cost(key_value))
    parts = []
    for group in groups:
        first = query.index_select(0, group.members).view(group.size, num_heads, 1, width)
        key, value = group.heads(key_value, 2, num_heads)
        mask = None if group.key_bias is None else group.key_bias[:, None].to(query.dtype)
        if probability > 0.0:
            # No fused kernel has dropout on a CPU, and its decomposition would draw a float each.
            scores = first @ key.transpose(-1, -2) / math.sqrt(width)
            probs = (scores if mask is None else scores + mask).softmax(-1)
            found = dropout(probs, probability, True) @ value
        else:
            found = functional.scaled_dot_product_attention(first, key, value, attn_mask=mask)
        parts.append(found.reshape(group.size, -1))
    if are_in_order(rows):
        return torch.cat(parts)
    order = torch.cat([group.members for group in groups])
    return torch.empty_like(query).index_copy(0, order, torch.cat(parts))


def _fused(heads: Tensor, group: Group, probability: float, causal: bool) -> Tensor:
    """(b, N, s, D) from queries, keys and values (3, b, N, s, D)."""
    query, key, value = heads
    mask = _mask(group, query, causal)
    return functional.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        dropout_p=probability,
        is_causal=causal and mask is None,
    )


def _mask(group: Group, query: Tensor, causal: bool) -> Tensor | None:
    """(b, 1, s, s), added to the scores; None where lengths are equal."""
    if group.key_bias is None:
        return None
    mask = group.key_bias[:, None].to(query.dtype)
    if causal:
        length = group.length
        future = torch.full((length, length), -math.inf, dtype=query.dtype, device=query.device)
        mask = mask + future.triu(1)
    return mask.expand(group.size, 1, group.length, group.length)


def _group_cost(projected: Tensor) -> int:
    is_forward = not (torch.is_grad_enabled() and projected.requires_grad)
    return _GROUP_COST_FORWARD if is_forward and not projected.is_cuda else GROUP_COST
