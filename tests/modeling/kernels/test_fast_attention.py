"""Attention's fast bodies against the plain one, forward and backward."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.modeling.attention_batches import (
    BATCHES,
    HEAD_SIZE,
    HEADS,
    WIDTH,
    make_query_key_value,
    make_rows,
)
from torch import Tensor

from tidybert.modeling.attention import plain_attention
from tidybert.modeling.kernels import fast_attention as grouped
from tidybert.modeling.kernels.fast_attention import (
    attention,
    choose_body,
    first_row_attention,
    grouped_attention,
    trained_attention,
)
from tidybert.modeling.rows import Rows


def plain_context(
    query_key_value: Tensor, rows: Rows, num_heads: int, probability: float, *given: Any
) -> Tensor:
    return plain_attention(query_key_value, rows, num_heads, probability, *given)[0]


@pytest.mark.parametrize(("causal", "window"), [(False, None), (True, None), (False, 3)])
@pytest.mark.parametrize("lengths", BATCHES)
@pytest.mark.parametrize("body", [attention, grouped_attention])
def test_each_body_is_the_plain_one(
    body: Callable[..., Tensor],
    lengths: tuple[int, ...],
    causal: bool,
    window: int | None,
    device: str,
) -> None:
    ours, theirs = make_query_key_value(lengths), make_query_key_value(lengths)
    upstream = torch.randn(sum(lengths), WIDTH)

    rows = make_rows(lengths).to(device)
    context = body(ours.to(device), rows, HEADS, 0.0, causal, window).cpu()
    expected = plain_context(theirs, make_rows(lengths), HEADS, 0.0, causal, window)
    context.backward(upstream)
    expected.backward(upstream)

    torch.testing.assert_close(context, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("body", [attention, trained_attention, plain_context])
def test_with_dropout_a_block_of_one_length_draws_the_same_mask_in_each_body(
    body: Callable[..., Tensor],
) -> None:
    lengths = (6, 6, 6)
    ours, theirs = make_query_key_value(lengths), make_query_key_value(lengths)
    upstream = torch.randn(sum(lengths), WIDTH)
    found = []

    for each, of in ((ours, body), (theirs, plain_context)):
        torch.manual_seed(4)
        found.append(of(each, make_rows(lengths), HEADS, 0.25))
        found[-1].backward(upstream)

    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "probability", "causal", "requires_grad", "expected"),
    [
        (torch.float32, 0.1, False, True, trained_attention),
        (torch.float32, 0.0, False, True, trained_attention),
        (torch.float32, 0.1, False, False, trained_attention),
        (torch.float32, 0.0, False, False, grouped_attention),
        (torch.float32, 0.1, True, True, grouped_attention),
        (torch.float64, 0.1, False, True, grouped_attention),
    ],
)
def test_the_body_on_a_cpu_follows_from_dtype_dropout_and_mask(
    dtype: torch.dtype,
    probability: float,
    causal: bool,
    requires_grad: bool,
    expected: Callable[..., Tensor],
) -> None:
    projected = torch.zeros(5, 3 * WIDTH, dtype=dtype, requires_grad=requires_grad)

    assert choose_body(projected, HEAD_SIZE, probability, causal) is expected


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", BATCHES)
def test_forward_alone_is_the_plain_body_and_computes_no_padding(
    lengths: tuple[int, ...], causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks: list[tuple[int, int]] = []
    fused = grouped.functional.scaled_dot_product_attention

    def recorded(query: Tensor, *more: Any, **named: Any) -> Tensor:
        blocks.append((query.shape[0], query.shape[2]))
        found: Tensor = fused(query, *more, **named)
        return found

    monkeypatch.setattr(grouped.functional, "scaled_dot_product_attention", recorded)
    query_key_value = make_query_key_value(lengths)

    with torch.inference_mode():
        context = attention(query_key_value, make_rows(lengths), HEADS, 0.0, causal)

    torch.testing.assert_close(
        context,
        plain_context(query_key_value, make_rows(lengths), HEADS, 0.0, causal).detach(),
        atol=1e-5,
        rtol=1e-5,
    )
    assert sum(size * length for size, length in blocks) == sum(lengths)


def test_dropout_is_without_bias() -> None:
    lengths = (6, 4)
    query_key_value = make_query_key_value(lengths).detach()
    torch.manual_seed(0)

    draws = torch.stack(
        [attention(query_key_value, make_rows(lengths), HEADS, 0.3) for _ in range(500)]
    )

    # Five standard errors of each element's mean.
    bound = 5 * draws.std(0) / math.sqrt(len(draws))
    assert (
        (draws.mean(0) - plain_context(query_key_value, make_rows(lengths), HEADS, 0.0)).abs()
        <= bound
    ).all()


def test_double_precision_and_dropout_in_it() -> None:
    lengths = (7, 2)
    query_key_value = make_query_key_value(lengths, torch.float64)

    context = attention(query_key_value, make_rows(lengths), HEADS, 0.0)
    assert context.dtype == torch.float64
    torch.testing.assert_close(
        context, plain_context(query_key_value, make_rows(lengths), HEADS, 0.0), atol=1e-12, rtol=0
    )

    torch.manual_seed(0)
    dropped = attention(query_key_value, make_rows(lengths), HEADS, 0.5)
    assert torch.isfinite(dropped).all()
    assert not torch.allclose(dropped, context)


@pytest.mark.parametrize("probability", [0.0, 0.1])
def test_rows_that_served_inference_can_be_trained_on(probability: float) -> None:
    rows = make_rows((3, 9, 1))
    query_key_value = make_query_key_value(rows.lengths)
    with torch.inference_mode():
        attention(query_key_value, rows, HEADS, 0.0)

    attention(query_key_value, rows, HEADS, probability).sum().backward()

    assert query_key_value.grad is not None


@pytest.mark.parametrize("lengths", BATCHES)
def test_the_first_rows_alone_are_those_of_the_whole(lengths: tuple[int, ...]) -> None:
    ours, theirs = make_query_key_value(lengths), make_query_key_value(lengths)
    rows = make_rows(lengths)
    upstream = torch.randn(len(lengths), WIDTH)

    first = first_row_attention(
        ours[rows.first_rows, :WIDTH], ours[:, WIDTH:], rows, HEADS, probability=0.0
    )
    whole = attention(theirs, rows, HEADS, 0.0)[rows.first_rows]
    first.backward(upstream)
    whole.backward(upstream)

    torch.testing.assert_close(first, whole, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-5, rtol=1e-5)


def test_the_first_rows_dropout_is_without_bias() -> None:
    rows = make_rows((6, 4, 4))
    each = make_query_key_value((6, 4, 4)).detach()
    query, key_value = each[rows.first_rows, :WIDTH], each[:, WIDTH:]
    torch.manual_seed(0)

    draws = torch.stack(
        [first_row_attention(query, key_value, rows, HEADS, 0.3) for _ in range(500)]
    )

    expected = first_row_attention(query, key_value, rows, HEADS, 0.0)
    # Five standard errors of each element's mean.
    bound = 5 * draws.std(0) / math.sqrt(len(draws))
    assert draws.std(0).max() > 0.01
    assert ((draws.mean(0) - expected).abs() <= bound + 1e-6).all()
