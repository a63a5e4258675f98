"""The written-out backward of training on a CPU, against autograd's of the formula."""

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
from torch import Tensor

from tidybert.modeling.attention import plain_attention
from tidybert.modeling.kernels import fast_attention as module
from tidybert.modeling.kernels.fast_attention import groups_of, trained_attention


# 1e-6 is rounded to no dropout at all, yet masks are drawn.
@pytest.mark.parametrize("probability", [0.0, 1e-6])
@pytest.mark.parametrize("lengths", BATCHES)
def test_without_dropout_the_hand_written_backward_is_autograds(
    lengths: tuple[int, ...], probability: float
) -> None:
    ours, theirs = make_query_key_value(lengths), make_query_key_value(lengths)
    upstream = torch.randn(sum(lengths), WIDTH)

    trained_attention(ours, make_rows(lengths), HEADS, probability).backward(upstream)
    plain_attention(theirs, make_rows(lengths), HEADS, 0.0)[0].backward(upstream)

    torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("lengths", BATCHES)
def test_with_dropout_forward_and_backward_are_the_formulas_with_that_mask(
    lengths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Tensor] = []

    def recorded(shape: torch.Size, probability: float) -> tuple[Tensor, float]:
        mask = (torch.rand(shape) >= probability).float()
        drawn.append(mask.clone())
        return mask, 1 / (1 - probability)

    monkeypatch.setattr(module, "keep_mask", recorded)
    rows = make_rows(lengths)

    def keep(sequence: int) -> Tensor:
        """(N, n, n): what was drawn for a sequence, found by the row of its first token."""
        (flat,) = drawn
        groups = groups_of(rows, module.GROUP_COST)
        sizes = [group.size * HEADS * group.length**2 for group in groups]
        for group, mask in zip(groups, flat.split(sizes), strict=True):
            first_rows = group.gather.view(group.size, group.length)[:, 0].tolist()
            if int(rows.cu_seqlens[sequence]) in first_rows:
                place, length = first_rows.index(int(rows.cu_seqlens[sequence])), lengths[sequence]
                of_group = mask.view(group.size, HEADS, group.length, group.length)
                return of_group[place, :, :length, :length] / 0.75
        raise AssertionError(sequence)

    ours, theirs = make_query_key_value(lengths), make_query_key_value(lengths)
    upstream = torch.randn(sum(lengths), WIDTH)
    context = trained_attention(ours, rows, HEADS, 0.25)
    context.backward(upstream)
    expected = formula(theirs, lengths, keep=keep)
    expected.backward(upstream)

    torch.testing.assert_close(context, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours.grad, theirs.grad, atol=2e-5, rtol=1e-5)
    assert not torch.allclose(context, formula(theirs, lengths), atol=1e-2)
