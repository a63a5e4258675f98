"""Self-attention over rows: one interface, a few bodies.

Paper: Vaswani et al. 2017, section 3.2.1; original code: modeling.py, attention_layer.  Only here
are sequences told apart.  T tokens, B sequences, S longest length, N heads, D head width, H width.

- ``grouped``: sequences gathered by similar length into dense blocks; on a CPU in training a
  backward written out by hand, elsewhere scaled_dot_product_attention.
- ``varlen``: PyTorch's variable-length flash attention, on CUDA in half precision.
- ``plain``: softmax(Q K^T / sqrt(D)) V over padded blocks, which also returns the probabilities.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tidybert.modeling.kernels.dropout import dropout, keep_mask
from tidybert.modeling.rows import Group, Rows

# How many padded cells of scores a head cost as much time as a further group.  Measured with 12
# heads of 32 and 4 of 64 on batches of short and long texts, with dropout and without, forward and
# backward: 256 to 2048 are equal within noise; 4096 takes half as long again where most texts are
# of one length and would then be padded.
_GROUP_COST = 1024
# Forward alone, on a CPU, only equal lengths go together: batches of similar lengths, as inference
# has, take a fifth less time without padding and the copies that it needs, and batches of 32
# sentences in a file's order about as much.
_GROUP_COST_FORWARD = 0
# Flash attention's.
_WIDEST_HEAD = 256


def attention(
    query_key_value: Tensor, rows: Rows, num_heads: int, probability: float, causal: bool = False
) -> Tensor:
    """Context (T, H) from the joint projection (T, 3H); ``probability`` drops attention weights.

    ``causal`` lets a token see only itself and what stands before it.
    """
    if _varlen_fits(query_key_value, query_key_value.shape[1] // (3 * num_heads), probability):
        return _varlen(query_key_value, rows, num_heads, causal)
    on_cpu = query_key_value.device.type == "cpu" and query_key_value.dtype == torch.float32
    is_trained = torch.is_grad_enabled() and query_key_value.requires_grad
    if on_cpu and (is_trained or probability > 0.0) and not causal:
        return _GroupedTraining.apply(query_key_value, rows, num_heads, probability)  # type: ignore[no-any-return,no-untyped-call]
    parts = []
    groups = rows.groups(_group_cost(query_key_value))
    for group in groups:
        heads = _heads(query_key_value, group, num_heads)
        block = _fused(heads, group, probability, causal)
        parts.append(_tokens(block.transpose(1, 2), group))
    if rows.groups_in_order:
        return torch.cat(parts)
    context = query_key_value.new_empty(query_key_value.shape[0], query_key_value.shape[1] // 3)
    return context.index_copy(0, torch.cat([group.rows for group in groups]), torch.cat(parts))


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


def first_row_attention(
    query: Tensor, key_value: Tensor, rows: Rows, num_heads: int, probability: float
) -> Tensor:
    """Context (B, H) of each sequence's first token alone.

    ``query`` (B, H) is of those tokens, ``key_value`` (T, 2H) of all; ``probability`` drops
    attention weights.
    """
    width = query.shape[1] // num_heads
    if _varlen_fits(query, width, probability):
        return _varlen_first(query, key_value, rows, num_heads)
    parts = []
    groups = rows.groups(_group_cost(key_value))
    for group in groups:
        first = query.index_select(0, group.members).view(group.size, num_heads, 1, width)
        block = _cells(key_value, group).view(group.size, group.length, 2, num_heads, width)
        key, value = block.permute(2, 0, 3, 1, 4)
        mask = None if group.key_bias is None else group.key_bias[:, None].to(query.dtype)
        if probability > 0.0:
            # No fused kernel has dropout on a CPU, and its decomposition would draw a float each.
            scores = first @ key.transpose(-1, -2) / math.sqrt(width)
            probs = (scores if mask is None else scores + mask).softmax(-1)
            found = dropout(probs, probability, True) @ value
        else:
            found = functional.scaled_dot_product_attention(first, key, value, attn_mask=mask)
        parts.append(found.reshape(group.size, -1))
    if rows.groups_in_order:
        return torch.cat(parts)
    order = torch.cat([group.members for group in groups])
    return torch.empty_like(query).index_copy(0, order, torch.cat(parts))


def _sdpa_mask(group: Group, query: Tensor, causal: bool) -> Tensor | None:
    if group.key_bias is None:
        return None
    mask = group.key_bias[:, None].to(query.dtype)
    if causal:
        length = group.length
        future = torch.full((length, length), -math.inf, dtype=query.dtype, device=query.device)
        mask = mask + future.triu(1)
    return mask.expand(group.size, 1, group.length, group.length)


class _GroupedTraining(torch.autograd.Function):
    """Attention in training on the CPU, forward and backward written out.

    scaled_dot_product_attention has no fused kernel for dropout there, and its decomposition spends
    more on autograd's bookkeeping and copies than on these short sequences' products; its kernel
    without dropout is made for long ones, and takes more time backward.  The groups' scores lie in
    one flat tensor, so that what works element by element runs once for all of them.
    """

    @staticmethod
    def forward(
        ctx: Any, query_key_value: Tensor, rows: Rows, num_heads: int, probability: float
    ) -> Tensor:
        hidden_size = query_key_value.shape[1] // 3
        scaling = 1.0 / math.sqrt(hidden_size // num_heads)
        context = query_key_value.new_empty(query_key_value.shape[0], hidden_size)
        groups = rows.groups(_GROUP_COST)
        heads = [_heads(query_key_value, group, num_heads).contiguous() for group in groups]
        scores, score_blocks = _flat_blocks(groups, num_heads, query_key_value)
        probs, prob_blocks = _flat_blocks(groups, num_heads, query_key_value)
        for group, each, block in zip(groups, heads, score_blocks, strict=True):
            query, key, _ = each.view(3, *block.shape[:2], -1)
            torch.bmm(query, key.transpose(1, 2), out=block)
            if group.key_bias is not None:
                block.view(group.size, -1, group.length).add_(group.key_bias)
        scores.mul_(scaling)
        for block, prob_block in zip(score_blocks, prob_blocks, strict=True):
            torch.softmax(block, -1, out=prob_block)
        mask, kept_blocks = None, prob_blocks
        if probability > 0.0:
            mask, keep_scale = keep_mask(probs.shape, probability)
            mask.mul_(keep_scale)
            # What is kept overwrites the scores, which nobody needs any more.
            torch.mul(probs, mask, out=scores)
            kept_blocks = score_blocks
        for group, each, block in zip(groups, heads, kept_blocks, strict=True):
            value = each.view(3, *block.shape[:2], -1)[2]
            found = torch.bmm(block, value)
            _put(
                context, found.view(group.size, num_heads, group.length, -1).transpose(1, 2), group
            )
        ctx.save_for_backward(probs, mask, *heads)
        ctx.groups, ctx.num_heads, ctx.scaling = groups, num_heads, scaling
        return context

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (context_gradient,) = gradients
        probs, mask, *heads = ctx.saved_tensors
        groups, num_heads = ctx.groups, ctx.num_heads
        result = context_gradient.new_empty(
            context_gradient.shape[0], 3 * context_gradient.shape[1]
        )
        _, prob_blocks = _flat_blocks(groups, num_heads, probs, probs)
        kept_blocks = prob_blocks
        if mask is not None:
            _, kept_blocks = _flat_blocks(groups, num_heads, probs, probs * mask)
        flat_gradient, gradient_blocks = _flat_blocks(groups, num_heads, probs)
        head_gradients = [torch.empty_like(each) for each in heads]
        for group, each, kept, block, head_gradient in zip(
            groups, heads, kept_blocks, gradient_blocks, head_gradients, strict=True
        ):
            shape = (*block.shape[:2], -1)
            found = _cells(context_gradient, group).view(group.size, group.length, num_heads, -1)
            if group.key_bias is not None:
                # Cells past a sequence's end were filled with row 0 and must send nothing back.
                found = found * (group.key_bias == 0).view(group.size, group.length, 1, 1)
            found = found.transpose(1, 2).reshape(shape)
            torch.bmm(kept.transpose(1, 2), found, out=head_gradient.view(3, *shape)[2])
            torch.bmm(found, each.view(3, *shape)[2].transpose(1, 2), out=block)
        if mask is not None:
            flat_gradient.mul_(mask)
        for prob_block, block in zip(prob_blocks, gradient_blocks, strict=True):
            torch._softmax_backward_data(block, prob_block, -1, block.dtype, grad_input=block)
        flat_gradient.mul_(ctx.scaling)
        for group, each, block, head_gradient in zip(
            groups, heads, gradient_blocks, head_gradients, strict=True
        ):
            shape = (3, *block.shape[:2], -1)
            query, key, _ = each.view(shape)
            query_gradient, key_gradient, _ = head_gradient.view(shape)
            torch.bmm(block, key, out=query_gradient)
            torch.bmm(block.transpose(1, 2), query, out=key_gradient)
            _put(result, head_gradient.permute(1, 3, 0, 2, 4), group)
        return result, None, None, None


def _group_cost(projected: Tensor) -> int:
    is_forward = not (torch.is_grad_enabled() and projected.requires_grad)
    return _GROUP_COST_FORWARD if is_forward and not projected.is_cuda else _GROUP_COST


def _flat_blocks(
    groups: Sequence[Group], num_heads: int, like: Tensor, flat: Tensor | None = None
) -> tuple[Tensor, list[Tensor]]:
    """A flat tensor (newly made, or ``flat``) and its views (b * N, s, s), one a group."""
    sizes = [group.size * num_heads * group.length**2 for group in groups]
    if flat is None:
        flat = like.new_empty(sum(sizes))
    blocks = [
        part.view(group.size * num_heads, group.length, group.length)
        for part, group in zip(torch.split(flat, sizes), groups, strict=True)
    ]
    return flat, blocks


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


def _varlen_fits(hidden: Tensor, head_width: int, probability: float) -> bool:
    """Whether the kernel takes it: flash attention, which has no dropout, from Ampere on."""
    return (
        hidden.is_cuda
        and hidden.dtype in (torch.float16, torch.bfloat16)
        and probability == 0.0
        and head_width % 8 == 0
        and head_width <= _WIDEST_HEAD
        and torch.cuda.get_device_capability(hidden.device) >= (8, 0)
    )


def _varlen(query_key_value: Tensor, rows: Rows, num_heads: int, causal: bool) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    query, key, value = query_key_value.view(rows.num_tokens, 3, num_heads, -1).unbind(1)
    longest = rows.max_seqlen
    starts = rows.cu_seqlens
    # PyTorch 2.11 has put window_size in the place of is_causal; its __version__ is no plain text.
    flag: dict[str, Any] = (
        {"window_size": (-1, 0)} if torch.__version__ >= "2.11" else {"is_causal": True}
    )
    context = varlen_attn(
        query, key, value, starts, starts, longest, longest, **(flag if causal else {})
    )
    assert isinstance(context, Tensor)
    return context.reshape(rows.num_tokens, -1)


def _varlen_first(query: Tensor, key_value: Tensor, rows: Rows, num_heads: int) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    size = rows.num_sequences
    key, value = key_value.view(rows.num_tokens, 2, num_heads, -1).unbind(1)
    ones = torch.arange(size + 1, dtype=torch.int32, device=query.device)
    first = query.view(size, num_heads, -1)
    context = varlen_attn(first, key, value, ones, rows.cu_seqlens, 1, rows.max_seqlen)
    assert isinstance(context, Tensor)
    return context.reshape(size, -1)
