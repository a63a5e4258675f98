"""The plain body of attention against the formula, one sequence at a time."""

import pytest
import torch
from tests.modeling.attention_batches import (
    BATCHES,
    HEADS,
    WIDTH,
    formula,
    make_query_key_value,
    make_rows,
)

from tidybert.modeling.attention import plain_attention


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
