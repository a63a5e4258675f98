"""Self-attention over rows: one interface, a few bodies.

Paper: Vaswani et al. 2017, section 3.2.1; original code: modeling.py, attention_layer.  Only here
are sequences told apart.  T tokens, B sequences, S longest length, N heads, D head width, H width.

- ``grouped``: sequences gathered by similar length into dense blocks; on a CPU in training with
  dropout a backward written out by hand, elsewhere scaled_dot_product_attention.
- ``varlen``: PyTorch's variable-length flash attention, on CUDA in half precision.
- ``plain``: softmax(Q K^T / sqrt(D)) V over padded blocks, which also returns the probabilities.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tidybert.modeling.dropout import dropout, keep_mask
from tidybert.modeling.rows import Group, Rows


def attention(
    query_key_value: Tensor, rows: Rows, num_heads: int, probability: float, causal: bool = False
) -> Tensor:
    """Context (T, H) from the joint projection (T, 3H); ``probability`` drops attention weights.

    ``causal`` lets a token see only itself and what stands before it.
    """
    if _varlen_fits(query_key_value, probability):
        return _varlen(query_key_value, rows, num_heads, causal)
    on_cpu = query_key_value.device.type == "cpu" and query_key_value.dtype == torch.float32
    if on_cpu and probability > 0.0 and not causal:
        return _GroupedWithDropout.apply(query_key_value, rows, num_heads, probability)  # type: ignore[no-any-return,no-untyped-call]
    parts = []
    for group in rows.groups:
        heads = _heads(query_key_value, group, num_heads)
        block = _fused(heads, group, probability, causal)
        parts.append(_tokens(block.transpose(1, 2), group))
    if rows.groups_in_order:
        return torch.cat(parts)
    context = query_key_value.new_empty(query_key_value.shape[0], query_key_value.shape[1] // 3)
    return context.index_copy(0, torch.cat([group.rows for group in rows.groups]), torch.cat(parts))


def _fused(heads: Tensor, group: Group, probability: float, causal: bool) -> Tensor:
    """scaled_dot_product_attention of (3, b, N, s, D): (b, N, s, D)."""
    query, key, value = heads
    mask = _sdpa_mask(group, query, causal)
    return functional.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        dropout_p=probability,
        is_causal=causal and mask is None,
    )


def plain_attention(
    query_key_value: Tensor, rows: Rows, num_heads: int, probability: float, causal: bool = False
) -> tuple[Tensor, Tensor]:
    """Context (T, H) and attention_probs (B, N, S, S), which are 0 wherever there is no token."""
    hidden_size = query_key_value.shape[1] // 3
    size, longest = rows.num_sequences, rows.max_seqlen
    column = torch.arange(longest, device=query_key_value.device)
    lengths = torch.tensor(rows.lengths, device=query_key_value.device)
    is_token = column < lengths[:, None]
    blocks = query_key_value.new_zeros(size, longest, 3 * hidden_size)
    blocks[is_token] = query_key_value
    query, key, value = blocks.view(size, longest, 3, num_heads, -1).permute(2, 0, 3, 1, 4)
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    visible = is_token[:, None, None, :]
    if causal:
        visible = visible & (column <= column[:, None])
    scores = scores.masked_fill(~visible, -math.inf)
    probs = scores.softmax(-1) * is_token[:, None, :, None]
    context = dropout(probs, probability, probability > 0.0) @ value
    return context.transpose(1, 2).reshape(size, longest, hidden_size)[is_token], probs


def _heads(query_key_value: Tensor, group: Group, num_heads: int) -> Tensor:
    """(3, b, N, s, D): the group's queries, keys and values."""
    block = _cells(query_key_value, group)
    return block.view(group.size, group.length, 3, num_heads, -1).permute(2, 0, 3, 1, 4)


def _sdpa_mask(group: Group, query: Tensor, causal: bool) -> Tensor | None:
    if group.key_bias is None:
        return None
    mask = group.key_bias[:, None].to(query.dtype)
    if causal:
        length = group.length
        future = torch.full((length, length), -math.inf, dtype=query.dtype, device=query.device)
        mask = mask + future.triu(1)
    return mask.expand(group.size, 1, group.length, group.length)


class _GroupedWithDropout(torch.autograd.Function):
    """Attention with dropout on the CPU, forward and backward written out.

    scaled_dot_product_attention has no fused kernel for dropout there, and its decomposition spends
    more on autograd's bookkeeping and copies than on these short sequences' products.
    """

    @staticmethod
    def forward(
        ctx: Any, query_key_value: Tensor, rows: Rows, num_heads: int, probability: float
    ) -> Tensor:
        hidden_size = query_key_value.shape[1] // 3
        scaling = 1.0 / math.sqrt(hidden_size // num_heads)
        context = query_key_value.new_empty(query_key_value.shape[0], hidden_size)
        saved: list[Tensor] = []
        for group in rows.groups:
            heads = _heads(query_key_value, group, num_heads).contiguous()
            query, key, value = heads.view(3, group.size * num_heads, group.length, -1)
            scores = torch.bmm(query, key.transpose(1, 2)).mul_(scaling)
            if group.key_bias is not None:
                scores.view(group.size, -1, group.length).add_(group.key_bias)
            probs = torch.softmax(scores, -1)
            mask, keep_scale = keep_mask(probs.shape, probability)
            mask = mask.mul(keep_scale)
            block = torch.bmm(probs * mask, value)
            block = block.view(group.size, num_heads, group.length, -1).transpose(1, 2)
            _put(context, block, group)
            saved += [heads, probs, mask]
        ctx.save_for_backward(*saved)
        ctx.rows, ctx.num_heads, ctx.scaling = rows, num_heads, scaling
        return context

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (context_gradient,) = gradients
        saved = ctx.saved_tensors
        num_heads, scaling = ctx.num_heads, ctx.scaling
        hidden_size = context_gradient.shape[1]
        result = context_gradient.new_empty(context_gradient.shape[0], 3 * hidden_size)
        for place, group in enumerate(ctx.rows.groups):
            heads, probs, mask = saved[3 * place : 3 * place + 3]
            query, key, value = heads.view(3, group.size * num_heads, group.length, -1)
            block = _cells(context_gradient, group)
            block = block.view(group.size, group.length, num_heads, -1).transpose(1, 2)
            if group.key_bias is not None:
                # Cells past a sequence's end were filled with row 0 and must send nothing back.
                block = block * (group.key_bias == 0).view(group.size, 1, group.length, 1)
            block = block.reshape(group.size * num_heads, group.length, -1)
            result_heads = torch.empty_like(heads)
            query_gradient, key_gradient, value_gradient = result_heads.view(
                3, group.size * num_heads, group.length, -1
            )
            torch.bmm((probs * mask).transpose(1, 2), block, out=value_gradient)
            probs_gradient = torch.bmm(block, value.transpose(1, 2)).mul_(mask)
            scores_gradient = torch._softmax_backward_data(probs_gradient, probs, -1, probs.dtype)
            scores_gradient.mul_(scaling)
            torch.bmm(scores_gradient, key, out=query_gradient)
            torch.bmm(scores_gradient.transpose(1, 2), query, out=key_gradient)
            _put(result, result_heads.permute(1, 3, 0, 2, 4), group)
        return result, None, None, None


def _cells(hidden: Tensor, group: Group) -> Tensor:
    """(b * s, width): the group's rows of ``hidden`` (T, width), a view where they stand so."""
    if group.start is not None:
        return hidden[group.start : group.start + group.size * group.length]
    return hidden.index_select(0, group.gather)


def _tokens(block: Tensor, group: Group) -> Tensor:
    """(t, width): the (b, s, …) block's cells that hold a token, in the order of ``group.rows``."""
    cells = block.reshape(group.size * group.length, -1)
    return cells if group.key_bias is None else cells.index_select(0, group.cells)


def _put(target: Tensor, block: Tensor, group: Group) -> None:
    """Write the (b, s, …) block's tokens to their rows of ``target`` (T, width)."""
    if group.start is not None:
        target[group.start : group.start + group.size * group.length].view(block.shape).copy_(block)
    else:
        target.index_copy_(0, group.rows, _tokens(block, group))


def _varlen_fits(query_key_value: Tensor, probability: float) -> bool:
    return (
        query_key_value.is_cuda
        and query_key_value.dtype in (torch.float16, torch.bfloat16)
        and probability == 0.0
    )


def _varlen(query_key_value: Tensor, rows: Rows, num_heads: int, causal: bool) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    query, key, value = query_key_value.view(rows.num_tokens, 3, num_heads, -1).unbind(1)
    longest = rows.max_seqlen
    context = varlen_attn(
        query,
        key,
        value,
        rows.cu_seqlens,
        rows.cu_seqlens,
        longest,
        longest,
        window_size=(-1, 0) if causal else (-1, -1),
    )
    assert isinstance(context, Tensor)
    return context.reshape(rows.num_tokens, -1)
