"""The written-out backward of training on a CPU, against autograd's of the formula."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tidybert.modeling.attention import plain_attention
from tidybert.modeling.kernels import trained_attention as module
from tidybert.modeling.kernels.grouped_attention import groups_of
from tidybert.modeling.kernels.trained_attention import trained_attention
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
    query_key_value: Tensor, lengths: tuple[int, ...], keep: Callable[[int], Tensor] | None = None
) -> Tensor:
    """softmax(Q K^T / sqrt(D)) V, a sequence at a time; ``keep`` multiplies a sequence's probs."""
    contexts = []
    for place, part in enumerate(query_key_value.split(lengths)):
        query, key, value = part.view(-1, 3, HEADS, HEAD_SIZE).permute(1, 2, 0, 3)
        probs = (query @ key.transpose(1, 2) / math.sqrt(HEAD_SIZE)).softmax(-1)
        if keep is not None:
            probs = probs * keep(place)
        contexts.append((probs @ value).transpose(0, 1).reshape(len(part), WIDTH))
    return torch.cat(contexts)


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
