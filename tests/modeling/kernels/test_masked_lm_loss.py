"""The loss of masked words, part by part, against PyTorch's of all logits at once."""

import pytest
import torch
from torch import Tensor

from tidybert.modeling.kernels import masked_lm_loss as module
from tidybert.modeling.kernels.masked_lm_loss import (
    IGNORED,
    masked_lm_loss,
    plain_masked_lm_loss,
)


@pytest.fixture(params=[1, 20, 2**20], ids=["a row", "some rows", "all rows"])
def at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PART", dict.fromkeys(("cpu", "cuda"), 11 * request.param))
    monkeypatch.setattr(module, "_LEAST_ROWS", 1)


def given() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """States, embeddings, bias, labels: 70 rows, 11 words, every seventh row without a label."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(70, 8, generator=generator).requires_grad_()
    embeddings = torch.randn(11, 8, generator=generator).requires_grad_()
    bias = torch.randn(11, generator=generator).requires_grad_()
    labels = torch.randint(0, 11, (70,), generator=generator)
    labels[::7] = IGNORED
    return hidden, embeddings, bias, labels


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("columns", [None, 64])
def test_loss_and_gradients_are_those_of_all_logits(
    device: str, columns: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if columns is not None:
        # As on CUDA, where the words fill whole tiles.
        monkeypatch.setattr(module, "_COLUMNS", dict.fromkeys(("cpu", "cuda"), columns))
    *tensors, labels = given()
    expected = plain_masked_lm_loss(*tensors, labels)
    found = masked_lm_loss(*(each.to(device) for each in (*tensors, labels)))

    torch.testing.assert_close(found.total.cpu(), expected.total)
    assert found.correct.item() == expected.correct
    # As a part of a step: divided by a count.
    for one, other in zip(
        torch.autograd.grad(found.total / 7, tensors),
        torch.autograd.grad(expected.total / 7, tensors),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.usefixtures("at_once")
def test_under_autocast_it_is_as_near_as_autocast_is() -> None:
    *tensors, labels = given()
    exact = plain_masked_lm_loss(*tensors, labels)
    exact_gradients = torch.autograd.grad(exact.total, tensors)
    with torch.autocast("cpu", torch.bfloat16):
        found = masked_lm_loss(*tensors, labels)

    assert found.total.dtype == torch.float32
    assert found.total != exact.total
    torch.testing.assert_close(found.total, exact.total, rtol=0.02, atol=0)
    for one, other in zip(torch.autograd.grad(found.total, tensors), exact_gradients, strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, rtol=0.05, atol=0.1)


def test_without_gradients_none_are_made() -> None:
    *tensors, labels = given()
    with torch.no_grad():
        found = masked_lm_loss(*tensors, labels)

    torch.testing.assert_close(found.total, plain_masked_lm_loss(*tensors, labels).total)
    assert not found.total.requires_grad


def test_rows_that_are_all_padding_have_no_loss_and_no_gradient() -> None:
    *tensors, labels = given()
    found = masked_lm_loss(*tensors, torch.full_like(labels, IGNORED))

    assert found.total == 0
    assert found.correct == 0
    for each in torch.autograd.grad(found.total, tensors):
        assert not each.any()


def test_of_equal_logits_the_first_is_the_prediction() -> None:
    hidden, embeddings = torch.zeros(3, 8), torch.zeros(11, 8)
    bias = torch.zeros(11)
    bias[4], bias[9] = 1.0, 1.0

    found = masked_lm_loss(hidden, embeddings, bias, torch.tensor([4, 9, 0]))

    assert found.correct == 1


def test_a_loss_that_is_not_finite_is_told() -> None:
    hidden, embeddings, bias, labels = given()
    with torch.no_grad():
        hidden[1, 0] = torch.inf

    assert not masked_lm_loss(hidden, embeddings, bias, labels).total.isfinite()
