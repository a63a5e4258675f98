"""Attention in training on a CPU, forward and backward written out.

scaled_dot_product_attention has no fused kernel for dropout there, and its decomposition spends
more on bookkeeping and copies than on the products of short sequences.  Its kernel without dropout
takes more time backward.  The groups' scores lie in one flat tensor, so each elementwise operation
runs once for all of them.
b sequences, s their longest length, N heads, T tokens, H width.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tidybert.modeling.kernels.dropout import keep_mask
from tidybert.modeling.kernels.grouped_attention import GROUP_COST, Group, groups_of
from tidybert.modeling.rows import Rows


def trained_attention(
    query_key_value: Tensor, rows: Rows, num_heads: int, probability: float, causal: bool = False
) -> Tensor:
    """Context (T, H) from the joint projection (T, 3H); ``probability`` drops attention weights.

    float32 on the CPU; ``causal`` must be False.
    """
    assert not causal
    return _GroupedTraining.apply(query_key_value, rows, num_heads, probability)  # type: ignore[no-any-return,no-untyped-call]


class _GroupedTraining(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query_key_value: Tensor, rows: Rows, num_heads: int, probability: float
    ) -> Tensor:
        hidden_size = query_key_value.shape[1] // 3
        scaling = 1.0 / math.sqrt(hidden_size // num_heads)
        context = query_key_value.new_empty(query_key_value.shape[0], hidden_size)
        groups = groups_of(rows, GROUP_COST)
        heads = [group.heads(query_key_value, 3, num_heads).contiguous() for group in groups]
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
            # The kept probabilities overwrite the scores, which nothing reads any more.
            torch.mul(probs, mask, out=scores)
            kept_blocks = score_blocks
        for group, each, block in zip(groups, heads, kept_blocks, strict=True):
            value = each.view(3, *block.shape[:2], -1)[2]
            found = torch.bmm(block, value)
            heads_last = found.view(group.size, num_heads, group.length, -1).transpose(1, 2)
            group.put(context, heads_last)
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
            found = group.take(context_gradient).view(group.size, group.length, num_heads, -1)
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
            group.put(result, head_gradient.permute(1, 3, 0, 2, 4))
        return result, None, None, None


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
