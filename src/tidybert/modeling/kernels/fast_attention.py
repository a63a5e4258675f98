"""Attention by the fastest body that fits the device, the dtype, dropout and the mask.

The plain body is ``modeling.attention.plain_attention``.  On CUDA in half precision the body is
PyTorch's variable-length flash attention (Dao et al. 2022, "FlashAttention").
T tokens, B sequences, H width, N heads.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from tidybert.modeling.kernels.dropout import dropout, keep_mask
from tidybert.modeling.kernels.linear import float32_on_a_cpu
from tidybert.modeling.kernels.transfer import to_device
from tidybert.modeling.rows import Rows

# Attention over groups of sequences of similar length, by PyTorch's scaled_dot_product_attention.
#
# A group is a dense block of b sequences of s cells, of which t hold a token.
# T tokens, N heads, D head width, H width.

GROUP_COST: Final = 1024
"""How many padded cells of scores a head cost as much time as a further group.

Measured forward and backward on batches of short and long texts: 256 to 2048 are equal within
noise; 4096 takes half as long again if most texts have one length.
"""
_WITHOUT_CUDNN: Final = [
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]
# On CUDA a group is some twenty launches, and a million cells of scores are faster than those.
_GROUP_COST_CUDA: Final = 2**20
# A softmax over fewer takes five to ten times as long on a CPU, forward and backward.
_LEAST_LENGTH: Final = 16
# Forward alone, on a CPU, only equal lengths go together: inference has batches of similar lengths,
# which take a fifth less time without padding and its copies.
_GROUP_COST_FORWARD: Final = 0


@dataclass(frozen=True)
class Group:
    """Sequences of similar length as one dense block of (b, s) cells.

    ``members`` (b,) int64 are the sequences' numbers in the batch.
    ``gather`` (b * s,) int64 names the row of each cell, row 0 where a sequence is shorter than s.
    ``cells`` (t,) int64 names the cells that hold a token, in the order of their ``rows`` (t,).
    ``key_bias`` is None where all lengths are equal, else (b, 1, s) float32: 0 for a token, -inf
    past a sequence's end.  ``start`` is the first row where lengths are equal and the rows follow
    each other, else None.
    """

    size: int
    length: int
    members: Tensor
    gather: Tensor
    cells: Tensor
    rows: Tensor
    key_bias: Tensor | None
    start: int | None

    @property
    def _span(self) -> slice:
        """The group's rows, where they follow each other."""
        assert self.start is not None
        return slice(self.start, self.start + self.size * self.length)

    def take(self, hidden: Tensor) -> Tensor:
        """(b * s, C): the cells' rows of ``hidden`` (T, C); a view where they follow each other."""
        return hidden[self._span] if self.start is not None else hidden.index_select(0, self.gather)

    def heads(self, joint: Tensor, parts: int, num_heads: int) -> Tensor:
        """(parts, b, N, s, D): a joint projection (T, parts * H), by part and head."""
        block = self.take(joint).view(self.size, self.length, parts, num_heads, -1)
        return block.permute(2, 0, 3, 1, 4)

    def tokens(self, block: Tensor) -> Tensor:
        """(t, C): the cells of a (b, s, ...) block that hold a token, in the order of ``rows``."""
        cells = block.reshape(self.size * self.length, -1)
        return cells if self.key_bias is None else cells.index_select(0, self.cells)


def grouped_attention(
    query_key_value: Tensor,
    rows: Rows,
    num_heads: int,
    probability: float,
    causal: bool = False,
    window: int | None = None,
) -> Tensor:
    """Context (T, H) from the joint projection (T, 3H); ``probability`` drops attention weights.

    ``window``: a token sees only those at most so many places away.
    """
    if len(rows.lengths) == 1 and probability == 0.0:
        query, key, value = _heads_of_one(query_key_value, 3, num_heads)
        block = functional.scaled_dot_product_attention(
            query, key, value, _far(rows.max_seqlen, window, query), is_causal=causal
        )
        return block.transpose(1, 2).reshape(query_key_value.shape[0], -1)
    groups = groups_of(rows, _group_cost(query_key_value))
    parts = []
    for group in groups:
        heads = group.heads(query_key_value, 3, num_heads)
        block = _fused(heads, group, probability, causal, window)
        parts.append(group.tokens(block.transpose(1, 2)))
    if are_in_order(rows):
        return parts[0] if len(parts) == 1 else torch.cat(parts)
    context = query_key_value.new_empty(query_key_value.shape[0], query_key_value.shape[1] // 3)
    return context.index_copy(0, torch.cat([group.rows for group in groups]), torch.cat(parts))


def grouped_first_row_attention(
    query: Tensor, key_value: Tensor, rows: Rows, num_heads: int, probability: float
) -> Tensor:
    """Context (B, H) of first tokens from their queries (B, H) and all keys and values (T, 2H)."""
    width = query.shape[1] // num_heads
    if len(rows.lengths) == 1 and probability == 0.0:
        first = query.view(1, num_heads, 1, width)
        key, value = _heads_of_one(key_value, 2, num_heads)
        found = functional.scaled_dot_product_attention(first, key, value)
        return found.reshape(1, -1)
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


def _heads_of_one(joint: Tensor, parts: int, num_heads: int) -> Tensor:
    """(parts, 1, N, T, D): ``Group.heads`` of a batch of one sequence."""
    return joint.view(1, joint.shape[0], parts, num_heads, -1).permute(2, 0, 3, 1, 4)


def _fused(
    heads: Tensor, group: Group, probability: float, causal: bool, window: int | None
) -> Tensor:
    """(b, N, s, D) from queries, keys and values (3, b, N, s, D)."""
    query, key, value = heads
    mask = _mask(group, query, causal, window)
    is_causal = causal and mask is None
    if query.is_cuda and probability > 0.0:
        # cuDNN's kernel rounds the rate to sixteenths on Hopper (PyTorch's issue 174245).
        with sdpa_kernel(_WITHOUT_CUDNN):
            return functional.scaled_dot_product_attention(
                query, key, value, attn_mask=mask, dropout_p=probability, is_causal=is_causal
            )
    return functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=probability, is_causal=is_causal
    )


def _mask(group: Group, query: Tensor, causal: bool, window: int | None) -> Tensor | None:
    """(b, 1, s, s), added to the scores; None where lengths are equal and all tokens are near."""
    far = _far(group.length, window, query)
    if group.key_bias is None:
        return far
    mask = group.key_bias[:, None].to(query.dtype)
    if causal:
        length = group.length
        future = torch.full((length, length), -math.inf, dtype=query.dtype, device=query.device)
        mask = mask + future.triu(1)
    if far is not None:
        mask = mask + far
    return mask.expand(group.size, 1, group.length, group.length)


def _far(length: int, window: int | None, like: Tensor) -> Tensor | None:
    """(s, s): 0 for tokens at most ``window`` places apart, else the lowest number; or None.

    A cell past a sequence's end may be far from all tokens, and -inf would make its softmax NaN.
    """
    if window is None or length <= window + 1:
        return None
    places = torch.arange(length, device=like.device)
    is_far = (places[:, None] - places).abs() > window
    return is_far.to(like.dtype) * torch.finfo(like.dtype).min


def _group_cost(projected: Tensor) -> int:
    if projected.is_cuda:
        return _GROUP_COST_CUDA
    is_forward = not (torch.is_grad_enabled() and projected.requires_grad)
    return _GROUP_COST_FORWARD if is_forward else GROUP_COST


def groups_of(rows: Rows, cost: int, least: int = 1) -> tuple[Group, ...]:
    """The sequences by similar length, the longest first; computed once for each ``cost``.

    A group ends where its padding would be more than ``cost`` cells of one head's scores.  No
    group is shorter than ``least`` cells.
    """
    if (cost, least) not in rows.derived:
        starts = np.concatenate([[0], np.cumsum(rows.lengths)])
        lengths = np.array(rows.lengths)
        # A tensor made in inference mode could not serve a backward later.
        with torch.inference_mode(False):
            rows.derived[cost, least] = tuple(
                _group(
                    starts,
                    lengths,
                    members,
                    max(least, int(lengths[members].max())),
                    rows.input_ids.device,
                )
                for members in _similar_lengths(lengths, cost)
            )
    groups: tuple[Group, ...] = rows.derived[cost, least]
    return groups


def are_in_order(rows: Rows) -> bool:
    """Whether the groups' rows, one group after the other, are the rows in their order."""
    if are_in_order not in rows.derived:
        rows.derived[are_in_order] = list(rows.lengths) == sorted(rows.lengths, reverse=True)
    return bool(rows.derived[are_in_order])


def _similar_lengths(lengths: npt.NDArray[np.int64], cost: int) -> list[npt.NDArray[np.int64]]:
    """Cut the sequences, sorted by length, where the padding would exceed ``cost`` cells."""
    order = np.argsort(-lengths, kind="stable")
    groups: list[npt.NDArray[np.int64]] = []
    start = waste = 0
    for place, member in enumerate(order):
        longest = int(lengths[order[start]])
        waste += longest**2 - int(lengths[member]) ** 2
        if waste > cost:
            groups.append(order[start:place])
            start, waste = place, 0
    groups.append(order[start:])
    return groups


def _group(
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    members: npt.NDArray[np.int64],
    longest: int,
    device: torch.device,
) -> Group:
    begins, member_lengths = starts[members], lengths[members]
    columns = np.arange(longest)
    is_token = columns < member_lengths[:, None]
    gather = np.where(is_token, begins[:, None] + columns, 0).reshape(-1)
    cells = is_token.reshape(-1).nonzero()[0]
    key_bias, start = None, None
    if not is_token.all():
        bias = np.where(is_token, 0.0, -np.inf).astype(np.float32)[:, None, :]
        key_bias = to_device(torch.from_numpy(bias), device)
    elif (np.diff(begins) == longest).all():
        start = int(begins[0])
    return Group(
        size=len(members),
        length=longest,
        members=to_device(torch.from_numpy(members), device),
        gather=to_device(torch.from_numpy(gather), device),
        cells=to_device(torch.from_numpy(cells), device),
        rows=to_device(torch.from_numpy(gather[cells]), device),
        key_bias=key_bias,
        start=start,
    )


# Attention in training on a CPU, forward and backward written out.
#
# scaled_dot_product_attention has no fused kernel for dropout there, and its decomposition spends
# more on bookkeeping and copies than on the products of short sequences.  Its kernel without
# dropout takes more time backward.  The groups' heads and scores lie in flat tensors, so each
# elementwise operation runs once for all of them, and one lookup brings rows to heads and back.
# b sequences, s their longest length, N heads, D head width, T tokens, H width, C cells of all
# groups.


def trained_attention(
    query_key_value: Tensor,
    rows: Rows,
    num_heads: int,
    probability: float,
    causal: bool = False,
    window: int | None = None,
) -> Tensor:
    """Context (T, H) from the joint projection (T, 3H); ``probability`` drops attention weights.

    float32 on the CPU; ``causal`` must be False.
    """
    assert not causal
    return _GroupedTraining.apply(query_key_value, rows, num_heads, probability, window)  # type: ignore[no-any-return,no-untyped-call]


@dataclass(frozen=True)
class _HeadCells:
    """Where each head of each token lies among the groups' blocks (b, N, s, D), end to end.

    of_context (N * C,) and of_joint (3 * N * C,) int64 name the part of width D in (T, H) and
    (T, 3H) that a cell holds, that of row 0 past a sequence's end.  to_context (T * N,) and
    to_joint (T * 3 * N,) name the cell of each part.  padding: the cells past a sequence's end.
    longest: of each group, without the padding of all its sequences.
    """

    groups: tuple[Group, ...]
    num_heads: int
    of_context: Tensor
    of_joint: Tensor
    to_context: Tensor
    to_joint: Tensor
    padding: Tensor
    longest: tuple[int, ...]

    @classmethod
    def of(cls, rows: Rows, num_heads: int) -> "_HeadCells":
        """Those of a batch, computed once for all layers."""
        if (cls, num_heads) not in rows.derived:
            groups = groups_of(rows, GROUP_COST, _LEAST_LENGTH)
            tokens, heads, holds = [], [], []
            for group in groups:
                shape = group.size, num_heads, group.length
                tokens.append(group.gather.view(shape[0], 1, shape[2]).expand(shape).flatten())
                heads.append(torch.arange(num_heads)[:, None].expand(shape).flatten())
                is_token = torch.ones(1) if group.key_bias is None else group.key_bias == 0
                holds.append(is_token.bool().expand(shape).flatten())
            token, head, is_token = torch.cat(tokens), torch.cat(heads), torch.cat(holds)
            of_context, part = token * num_heads + head, torch.arange(3)
            cells = is_token.nonzero()[:, 0]
            to_context = torch.empty(rows.num_tokens * num_heads, dtype=torch.int64)
            to_context[of_context[cells]] = cells
            by_part = to_context.view(-1, 1, num_heads) + len(token) * part[:, None]
            rows.derived[cls, num_heads] = cls(
                groups,
                num_heads,
                of_context,
                ((token * 3 + part[:, None]) * num_heads + head).flatten(),
                to_context,
                by_part.flatten(),
                (~is_token).nonzero()[:, 0],
                tuple(int((group.cells % group.length).max()) + 1 for group in groups),
            )
        found: _HeadCells = rows.derived[cls, num_heads]
        return found

    def blocks(self, flat: Tensor) -> list[Tensor]:
        """The views (b * N, s, D) of (N * C, D), one a group."""
        sizes = [group.size * self.num_heads * group.length for group in self.groups]
        return [
            part.view(-1, group.length, flat.shape[1])
            for part, group in zip(torch.split(flat, sizes), self.groups, strict=True)
        ]

    def score_blocks(self, flat: Tensor) -> list[Tensor]:
        """The views (b * N, s, s) of a flat tensor, one a group."""
        sizes = [group.size * self.num_heads * group.length**2 for group in self.groups]
        return [
            part.view(-1, group.length, group.length)
            for part, group in zip(torch.split(flat, sizes), self.groups, strict=True)
        ]

    def mask(self, scores: Tensor, probability: float) -> Tensor:
        """What flat scores are multiplied by in dropout; padding of all sequences draws nothing."""
        counts = [group.size * self.num_heads for group in self.groups]
        sizes = [count * length**2 for count, length in zip(counts, self.longest, strict=True)]
        drawn, scale = keep_mask(torch.Size([sum(sizes)]), probability)
        drawn.mul_(scale)
        if len(drawn) == len(scores):
            return drawn
        mask = torch.zeros_like(scores)
        blocks = zip(self.score_blocks(mask), torch.split(drawn, sizes), self.longest, strict=True)
        for block, part, length in blocks:
            block[:, :length, :length] = part.view(-1, length, length)
        return mask

    @property
    def num_scores(self) -> int:
        return self.num_heads * sum(group.size * group.length**2 for group in self.groups)


class _GroupedTraining(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query_key_value: Tensor,
        rows: Rows,
        num_heads: int,
        probability: float,
        window: int | None,
    ) -> Tensor:
        width = query_key_value.shape[1] // (3 * num_heads)
        cells = _HeadCells.of(rows, num_heads)
        heads = (
            query_key_value.reshape(-1, width).index_select(0, cells.of_joint).view(3, -1, width)
        )
        ctx.scaling = 1.0 / math.sqrt(width)
        heads[0].mul_(ctx.scaling)
        queries, keys, values = map(cells.blocks, heads)
        scores, probs = heads.new_empty(2, cells.num_scores)
        score_blocks, prob_blocks = cells.score_blocks(scores), cells.score_blocks(probs)
        for group, query, key, block, prob_block in zip(
            cells.groups, queries, keys, score_blocks, prob_blocks, strict=True
        ):
            torch.bmm(query, key.transpose(1, 2), out=block)
            if group.key_bias is not None:
                block.view(group.size, -1, group.length).add_(group.key_bias)
            if (far := _far(group.length, window, block)) is not None:
                block.add_(far)
            torch.softmax(block, -1, out=prob_block)
        mask, kept_blocks = None, prob_blocks
        if probability > 0.0:
            mask = cells.mask(probs, probability)
            # The kept probabilities overwrite the scores, which nothing reads any more.
            torch.mul(probs, mask, out=scores)
            kept_blocks = score_blocks
        found = torch.empty_like(heads[0])
        for block, value, result in zip(kept_blocks, values, cells.blocks(found), strict=True):
            torch.bmm(block, value, out=result)
        ctx.save_for_backward(probs, mask, heads)
        ctx.cells = cells
        return found.index_select(0, cells.to_context).view(rows.num_tokens, -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        (context_gradient,) = gradients
        probs, mask, heads = ctx.saved_tensors
        cells, width = ctx.cells, heads.shape[2]
        found = context_gradient.reshape(-1, width).index_select(0, cells.of_context)
        # Cells past a sequence's end hold row 0 and must send nothing back.
        found.index_fill_(0, cells.padding, 0.0)
        queries, keys, values = map(cells.blocks, heads)
        head_gradients = torch.empty_like(heads)
        of_queries, of_keys, of_values = map(cells.blocks, head_gradients)
        flat_gradient, prob_blocks = torch.empty_like(probs), cells.score_blocks(probs)
        blocks = cells.score_blocks(flat_gradient)
        kept_blocks = prob_blocks if mask is None else cells.score_blocks(probs * mask)
        for kept, value, gradient, block, of_value in zip(
            kept_blocks, values, cells.blocks(found), blocks, of_values, strict=True
        ):
            torch.bmm(kept.transpose(1, 2), gradient, out=of_value)
            torch.bmm(gradient, value.transpose(1, 2), out=block)
        if mask is not None:
            flat_gradient.mul_(mask)
        for prob_block, block, query, key, of_query, of_key in zip(
            prob_blocks, blocks, queries, keys, of_queries, of_keys, strict=True
        ):
            torch._softmax_backward_data(block, prob_block, -1, block.dtype, grad_input=block)
            torch.bmm(block, key, out=of_query)
            torch.bmm(block.transpose(1, 2), query, out=of_key)
        head_gradients[0].mul_(ctx.scaling)
        result = head_gradients.view(-1, width).index_select(0, cells.to_joint)
        return result.view(len(context_gradient), -1), None, None, None, None


_WIDEST_HEAD: Final = 256
# Some devices have no backward with dropout for wider heads.
_WIDEST_HEAD_WITH_DROPOUT: Final = 192

Body = Callable[[Tensor, Rows, int, float, bool, int | None], Tensor]


@float32_on_a_cpu
def attention(
    query_key_value: Tensor,
    rows: Rows,
    num_heads: int,
    probability: float,
    causal: bool = False,
    window: int | None = None,
) -> Tensor:
    """Context (T, H) from the joint projection (T, 3H); ``probability`` drops attention weights.

    ``causal`` lets a token see only itself and the tokens before it, ``window`` only those at most
    so many places away.
    """
    head_width = query_key_value.shape[1] // (3 * num_heads)
    body = choose_body(query_key_value, head_width, probability, causal)
    return body(query_key_value, rows, num_heads, probability, causal, window)


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
    query_key_value: Tensor,
    rows: Rows,
    num_heads: int,
    probability: float,
    causal: bool = False,
    window: int | None = None,
) -> Tensor:
    """Context (T, H) from the joint projection (T, 3H); ``probability`` drops attention weights."""
    query, key, value = query_key_value.view(rows.num_tokens, 3, num_heads, -1).unbind(1)
    starts, longest = rows.cu_seqlens, rows.max_seqlen
    context = _flash(
        query, key, value, starts, starts, longest, longest, probability, causal, window
    )
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
    window: int | None = None,
) -> Tensor:
    """Context (Q, N, D) of queries (Q, N, D) over keys and values (T, N, D).

    Starts are (B + 1,) int32.  The operator is the one that torch.nn.attention.varlen calls, with
    its dropout, whose random numbers come from the device's default generator.
    """
    found: Tensor = torch.ops.aten._flash_attention_forward(
        query, key, value, query_starts, key_starts, longest_query, longest_key, probability,
        causal, False, window_size_left=window, window_size_right=window,
    )[0]  # fmt: skip
    return found
