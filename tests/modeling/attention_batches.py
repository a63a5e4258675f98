"""Batches for the tests of attention, and what attention is: the formula, sequence by sequence."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from tidybert.modeling.rows import Rows

# Lengths that make one even block, one block with room left over, and several blocks.
BATCHES = [(5,), (4, 4, 4), (3, 9, 1, 7), (120, 3, 70, 2, 64, 1)]
HEADS, HEAD_SIZE = 3, 4
WIDTH = HEADS * HEAD_SIZE


def make_rows(lengths: tuple[int, ...]) -> Rows:
    return Rows.from_lists([[1] * length for length in lengths])


def make_query_key_value(lengths: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(sum(lengths))
    values = torch.randn(sum(lengths), 3 * WIDTH, generator=generator, dtype=dtype)
    return values.requires_grad_()


def formula(
    query_key_value: Tensor,
    lengths: tuple[int, ...],
    causal: bool = False,
    keep: Callable[[int], Tensor] | None = None,
    window: int | None = None,
) -> Tensor:
    """softmax(Q K^T / sqrt(D)) V, a sequence at a time; ``keep`` multiplies a sequence's probs."""
    contexts = []
    for place, part in enumerate(query_key_value.split(lengths)):
        query, key, value = part.view(-1, 3, HEADS, HEAD_SIZE).permute(1, 2, 0, 3)
        scores = query @ key.transpose(1, 2) / math.sqrt(HEAD_SIZE)
        if causal:
            future = torch.ones(len(part), len(part), dtype=torch.bool).triu(1)
            scores = scores.masked_fill(future, -math.inf)
        if window is not None:
            near = torch.ones(len(part), len(part), dtype=torch.bool).triu(-window).tril(window)
            scores = scores.masked_fill(~near, -math.inf)
        probs = scores.softmax(-1) if keep is None else scores.softmax(-1) * keep(place)
        contexts.append((probs @ value).transpose(0, 1).reshape(len(part), WIDTH))
    return torch.cat(contexts)
