"""The plain body of attention against the formula, one sequence at a time."""

import math

import pytest
import torch
from torch import Tensor

from tidybert.modeling.attention import plain_attention
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


def formula(query_key_value: Tensor, lengths: tuple[int, ...], causal: bool = False) -> Tensor:
    """softmax(Q K^T / sqrt(D)) V, a sequence at a time."""
    contexts = []
    for part in query_key_value.split(lengths):
        query, key, value = part.view(-1, 3, HEADS, HEAD_SIZE).permute(1, 2, 0, 3)
        scores = query @ key.transpose(1, 2) / math.sqrt(HEAD_SIZE)
        if causal:
            future = torch.ones(len(part), len(part), dtype=torch.bool).triu(1)
            scores = scores.masked_fill(future, -math.inf)
        contexts.append((scores.softmax(-1) @ value).transpose(0, 1).reshape(len(part), WIDTH))
    return torch.cat(contexts)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", BATCHES)
def test_the_plain_body_is_the_formula(lengths: tuple[int, ...], causal: bool) -> None:
    ours, theirs = make_query_key_value(lengths), make_query_key_value(lengths)
    upstream = torch.randn(sum(lengths), WIDTH)

    context, _ = plain_attention(ours, make_rows(lengths), HEADS, 0.0, causal)
    expected = formula(theirs, lengths, causal)
    context.backward(upstream)
    expected.backward(upstream)

    torch.testing.assert_close(context, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_probs_are_a_distribution_over_the_sequences_own_tokens(causal: bool) -> None:
    lengths = (3, 5, 1)

    _, probs = plain_attention(
        make_query_key_value(lengths), make_rows(lengths), HEADS, 0.0, causal
    )

    assert probs.shape == (3, HEADS, 5, 5)
    for of_sequence, length in zip(probs, lengths, strict=True):
        within = of_sequence[:, :length, :length]
        torch.testing.assert_close(within.sum(-1), torch.ones(HEADS, length))
        torch.testing.assert_close(of_sequence.sum(), within.sum())
        if causal:
            assert (within.triu(1) == 0).all()
