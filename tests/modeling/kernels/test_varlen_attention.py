"""Variable-length flash attention: what it is given, and when it is chosen."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.modeling.attention_batches import BATCHES, HEADS, WIDTH, make_query_key_value, make_rows
from torch import Tensor

from tidybert.modeling.attention import plain_attention
from tidybert.modeling.kernels import fast_attention as module
from tidybert.modeling.kernels.fast_attention import attention, first_row_attention, fits
from tidybert.training.determinism import deterministic_algorithms


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("causal", [False, True])
def test_variable_length_flash_attention_is_the_plain_body_in_half_precision(causal: bool) -> None:
    lengths = (120, 3, 70, 1)
    heads, width = 4, 4 * 32
    given = torch.randn(sum(lengths), 3 * width, device="cuda", dtype=torch.bfloat16)
    exact = given.float().requires_grad_()
    given.requires_grad_()
    rows = make_rows(lengths).to("cuda")

    context = attention(given, rows, heads, 0.0, causal)
    expected, _ = plain_attention(exact, rows, heads, 0.0, causal)
    torch.autograd.backward([context.float().square().sum(), expected.square().sum()])

    assert context.dtype == torch.bfloat16
    # bfloat16 keeps 8 bits of mantissa.
    torch.testing.assert_close(context.float(), expected, atol=2e-2, rtol=2e-2)
    assert given.grad is not None
    assert exact.grad is not None
    largest = exact.grad.abs().max()
    torch.testing.assert_close(
        given.grad.float() / largest, exact.grad / largest, atol=6e-2, rtol=0
    )


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_gradients_on_cuda_repeat_to_the_bit_where_it_is_asked() -> None:
    lengths = (128,) * 64 + (77, 3, 1)
    given = torch.randn(
        sum(lengths), 3 * 768, device="cuda", dtype=torch.bfloat16, requires_grad=True
    )
    rows = make_rows(lengths).to("cuda")
    found = []
    with deterministic_algorithms():
        for _ in range(3):
            torch.manual_seed(7)
            context = attention(given, rows, 12, 0.1)
            found += torch.autograd.grad(context.float().square().sum(), [given])

    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_dropout_on_cuda_has_its_rate_and_follows_from_the_seed() -> None:
    lengths, heads, width = (128,) * 64, 12, 768
    given = torch.randn(sum(lengths), 3 * width, device="cuda", dtype=torch.bfloat16)
    given[:, : 2 * width] *= 1e-3
    rows = make_rows(lengths).to("cuda")
    dropped = []
    for _ in range(2):
        torch.manual_seed(7)
        dropped.append(attention(given, rows, heads, 0.1))
    whole = attention(given, rows, heads, 0.0)

    assert torch.equal(*dropped)
    # With equal weights over 128 keys, the variance is that of the values times p / (1 - p) / 128.
    ratio = (dropped[0].float() - whole.float()).var().item() * 128
    assert ratio / (1 + ratio) == pytest.approx(0.1, abs=0.005)


def flash_by_hand(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    probability: float,
    causal: bool,
    window: int | None = None,
) -> Tensor:
    """What aten._flash_attention_forward computes, without dropout, sequence by sequence."""
    assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
    assert (max_q, max_k) == (int(cu_seq_q.diff().max()), int(cu_seq_k.diff().max()))
    assert probability == 0.0
    parts = []
    for sequence in range(len(cu_seq_q) - 1):
        asked = slice(int(cu_seq_q[sequence]), int(cu_seq_q[sequence + 1]))
        seen = slice(int(cu_seq_k[sequence]), int(cu_seq_k[sequence + 1]))
        heads = (query[asked], key[seen], value[seen])
        mask = None
        if window is not None:
            places = torch.arange(len(heads[1]))
            mask = (places[: len(heads[0]), None] - places).abs() <= window
        found = torch.nn.functional.scaled_dot_product_attention(
            *(each.transpose(0, 1) for each in heads), attn_mask=mask, is_causal=causal
        )
        parts.append(found.transpose(0, 1))
    return torch.cat(parts)


@pytest.mark.parametrize(("causal", "window"), [(False, None), (True, None), (False, 3)])
@pytest.mark.parametrize("lengths", BATCHES)
def test_the_variable_length_kernel_is_given_the_sequences(
    lengths: tuple[int, ...], causal: bool, window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_flash", flash_by_hand)
    monkeypatch.setattr(module, "fits", lambda *_: True)
    rows = make_rows(lengths)
    query_key_value = make_query_key_value(lengths)

    context = attention(query_key_value, rows, HEADS, 0.0, causal, window)

    expected = plain_attention(query_key_value, rows, HEADS, 0.0, causal, window)[0]
    torch.testing.assert_close(context, expected, atol=1e-5, rtol=1e-5)
    if not causal and window is None:
        query, key_value = query_key_value[rows.first_rows, :WIDTH], query_key_value[:, WIDTH:]
        first = first_row_attention(query, key_value, rows, HEADS, 0.0)
        torch.testing.assert_close(first, expected[rows.first_rows], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "width", "probability", "capability", "expected"),
    [
        (torch.bfloat16, 64, 0.0, (8, 0), True),
        (torch.float16, 32, 0.0, (9, 0), True),
        (torch.float32, 64, 0.0, (9, 0), False),
        (torch.bfloat16, 64, 0.1, (9, 0), True),
        (torch.bfloat16, 256, 0.0, (8, 0), True),
        (torch.bfloat16, 256, 0.1, (8, 0), False),
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

    assert fits(on_cuda, width, probability) is expected
