"""Attention's bodies against the formula, one sequence at a time, forward and backward."""

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.torch_version import TorchVersion

from tidybert.modeling import attention as module
from tidybert.modeling.attention import attention, first_row_attention, plain_attention
from tidybert.modeling.rows import Group, Rows

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
) -> Tensor:
    """softmax(Q K^T / sqrt(D)) V, a sequence at a time; ``keep`` multiplies a sequence's probs."""
    contexts = []
    for place, part in enumerate(query_key_value.split(lengths)):
        query, key, value = part.view(-1, 3, HEADS, HEAD_SIZE).permute(1, 2, 0, 3)
        scores = query @ key.transpose(1, 2) / math.sqrt(HEAD_SIZE)
        if causal:
            future = torch.ones(len(part), len(part), dtype=torch.bool).triu(1)
            scores = scores.masked_fill(future, -math.inf)
        probs = scores.softmax(-1)
        if keep is not None:
            probs = probs * keep(place)
        contexts.append((probs @ value).transpose(0, 1).reshape(len(part), WIDTH))
    return torch.cat(contexts)


def plain_context(
    query_key_value: Tensor, rows: Rows, num_heads: int, probability: float, causal: bool = False
) -> Tensor:
    return plain_attention(query_key_value, rows, num_heads, probability, causal)[0]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", BATCHES)
@pytest.mark.parametrize("body", [attention, plain_context])
def test_each_body_is_the_formula(
    body: Callable[..., Tensor], lengths: tuple[int, ...], causal: bool
) -> None:
    ours, theirs = make_query_key_value(lengths), make_query_key_value(lengths)
    upstream = torch.randn(sum(lengths), WIDTH)

    context = body(ours, make_rows(lengths), HEADS, 0.0, causal)
    expected = formula(theirs, lengths, causal)
    context.backward(upstream)
    expected.backward(upstream)

    torch.testing.assert_close(context, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", BATCHES)
def test_forward_alone_is_the_formula_and_computes_no_padding(
    lengths: tuple[int, ...], causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks: list[tuple[int, int]] = []
    fused = module._fused

    def recorded(heads: Tensor, group: Group, *more: Any) -> Tensor:
        blocks.append((group.size, group.length))
        return fused(heads, group, *more)

    monkeypatch.setattr(module, "_fused", recorded)
    query_key_value = make_query_key_value(lengths)

    with torch.inference_mode():
        context = attention(query_key_value, make_rows(lengths), HEADS, 0.0, causal)

    torch.testing.assert_close(
        context, formula(query_key_value, lengths, causal).detach(), atol=1e-5, rtol=1e-5
    )
    assert sum(size * length for size, length in blocks) == sum(lengths)


# 1e-6 is rounded to no dropout at all, yet masks are drawn.
@pytest.mark.parametrize("probability", [0.0, 1e-6])
@pytest.mark.parametrize("lengths", BATCHES)
def test_without_dropout_the_hand_written_backward_is_autograds(
    lengths: tuple[int, ...], probability: float
) -> None:
    ours, theirs = make_query_key_value(lengths), make_query_key_value(lengths)
    upstream = torch.randn(sum(lengths), WIDTH)

    attention(ours, make_rows(lengths), HEADS, probability).backward(upstream)
    plain_context(theirs, make_rows(lengths), HEADS, 0.0).backward(upstream)

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
        groups = rows.groups(module._GROUP_COST)
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
    context = attention(ours, rows, HEADS, 0.25)
    context.backward(upstream)
    expected = formula(theirs, lengths, keep=keep)
    expected.backward(upstream)

    torch.testing.assert_close(context, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours.grad, theirs.grad, atol=2e-5, rtol=1e-5)
    assert not torch.allclose(context, formula(theirs, lengths), atol=1e-2)


def test_dropout_is_without_bias() -> None:
    lengths = (6, 4)
    query_key_value = make_query_key_value(lengths).detach()
    torch.manual_seed(0)

    draws = torch.stack(
        [attention(query_key_value, make_rows(lengths), HEADS, 0.3) for _ in range(500)]
    )

    # Five standard errors of each element's mean.
    bound = 5 * draws.std(0) / math.sqrt(len(draws))
    assert ((draws.mean(0) - formula(query_key_value, lengths)).abs() <= bound).all()


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


def test_double_precision_and_dropout_in_it() -> None:
    lengths = (7, 2)
    query_key_value = make_query_key_value(lengths, torch.float64)

    context = attention(query_key_value, make_rows(lengths), HEADS, 0.0)
    assert context.dtype == torch.float64
    torch.testing.assert_close(context, formula(query_key_value, lengths), atol=1e-12, rtol=0)

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


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("causal", [False, True])
def test_variable_length_flash_attention_is_the_formula_in_half_precision(causal: bool) -> None:
    lengths = (120, 3, 70, 1)
    heads, width = 4, 4 * 32
    query_key_value = torch.randn(sum(lengths), 3 * width, device="cuda", dtype=torch.bfloat16)
    rows = make_rows(lengths).to("cuda")

    context = attention(query_key_value, rows, heads, 0.0, causal)
    expected, _ = plain_attention(query_key_value.float(), rows, heads, 0.0, causal)

    assert context.dtype == torch.bfloat16
    # bfloat16 keeps 8 bits of mantissa.
    torch.testing.assert_close(context.float(), expected, atol=2e-2, rtol=2e-2)


def varlen_by_hand(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    *,
    window_size: tuple[int, int] = (-1, -1),
) -> Tensor:
    """What torch.nn.attention.varlen.varlen_attn is documented to compute."""
    assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
    assert (max_q, max_k) == (int(cu_seq_q.diff().max()), int(cu_seq_k.diff().max()))
    parts = []
    for sequence in range(len(cu_seq_q) - 1):
        asked = slice(int(cu_seq_q[sequence]), int(cu_seq_q[sequence + 1]))
        seen = slice(int(cu_seq_k[sequence]), int(cu_seq_k[sequence + 1]))
        heads = (query[asked], key[seen], value[seen])
        found = torch.nn.functional.scaled_dot_product_attention(
            *(each.transpose(0, 1) for each in heads), is_causal=window_size == (-1, 0)
        )
        parts.append(found.transpose(0, 1))
    return torch.cat(parts)


def varlen_of_2_10(*given: Any, is_causal: bool = False) -> Tensor:
    """The same with the arguments that PyTorch 2.10 gives it."""
    return varlen_by_hand(*given, window_size=(-1, 0) if is_causal else (-1, -1))


@pytest.mark.parametrize(
    ("kernel", "version"), [(varlen_by_hand, "2.13.0"), (varlen_of_2_10, "2.10.1")]
)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", BATCHES)
def test_the_variable_length_kernel_is_given_what_it_documents(
    lengths: tuple[int, ...],
    causal: bool,
    kernel: Callable[..., Tensor],
    version: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", kernel)
    monkeypatch.setattr(torch, "__version__", TorchVersion(version))
    monkeypatch.setattr(module, "_varlen_fits", lambda *_: True)
    rows = make_rows(lengths)
    query_key_value = make_query_key_value(lengths)

    context = attention(query_key_value, rows, HEADS, 0.0, causal)

    expected = formula(query_key_value, lengths, causal)
    torch.testing.assert_close(context, expected, atol=1e-5, rtol=1e-5)
    if not causal:
        query, key_value = query_key_value[rows.first_rows, :WIDTH], query_key_value[:, WIDTH:]
        first = first_row_attention(query, key_value, rows, HEADS, 0.0)
        torch.testing.assert_close(first, expected[rows.first_rows], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "width", "probability", "capability", "expected"),
    [
        (torch.bfloat16, 64, 0.0, (8, 0), True),
        (torch.float16, 32, 0.0, (9, 0), True),
        (torch.float32, 64, 0.0, (9, 0), False),
        (torch.bfloat16, 64, 0.1, (9, 0), False),
        (torch.bfloat16, 12, 0.0, (9, 0), False),
        (torch.bfloat16, 320, 0.0, (9, 0), False),
        (torch.float16, 64, 0.0, (7, 5), False),
    ],
)
def test_the_variable_length_kernel_is_asked_for_what_it_can_do(
    dtype: torch.dtype,
    width: int,
    probability: float,
    capability: tuple[int, int],
    expected: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: capability)
    on_cuda: Any = SimpleNamespace(is_cuda=True, dtype=dtype, device=None)

    assert module._varlen_fits(on_cuda, width, probability) is expected


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
