"""Linear layers: PyTorch's own results and gradients, by whichever library they are computed."""

from collections.abc import Iterator
from contextlib import nullcontext
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from tidybert.modeling.kernels import linear as module
from tidybert.modeling.kernels.linear import Linear, RoundedWeights, linear

SIZES = st.integers(1, 70)
ONE_ROUNDING = {"rtol": 2**-8, "atol": 1e-4}
ONEDNN = getattr(torch.ops.mkldnn, "_linear_pointwise", None)


@pytest.fixture(scope="module", autouse=True, params=["PyTorch's choice", "oneDNN"])
def operator(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both ways, whatever this processor's own is."""
    if request.param == "oneDNN" and ONEDNN is None:
        pytest.skip("this build of PyTorch has no oneDNN")
    chosen = "onednn" if request.param == "oneDNN" else "default"
    with mock.patch.object(module, "_products", chosen):
        yield


def drawn(
    rows: int, inputs: int, outputs: int, has_bias: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """States, weights, perhaps biases, and a gradient of the output."""
    torch.manual_seed(rows)
    hidden = torch.randn(rows, inputs, requires_grad=True)
    weight = torch.randn(outputs, inputs, requires_grad=True)
    bias = torch.randn(outputs, requires_grad=True) if has_bias else None
    return hidden, weight, bias, torch.randn(rows, outputs)


@settings(max_examples=40)
@given(SIZES, SIZES, SIZES, st.booleans())
def test_results_and_gradients_are_pytorchs(
    rows: int, inputs: int, outputs: int, has_bias: bool
) -> None:
    hidden, weight, bias, gradient = drawn(rows, inputs, outputs, has_bias)
    given_parts = [each for each in (hidden, weight, bias) if each is not None]

    found = linear(hidden, weight, bias)
    expected = functional.linear(hidden, weight, bias)

    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-5)
    for ours, theirs in zip(
        torch.autograd.grad(found, given_parts, gradient),
        torch.autograd.grad(expected, given_parts, gradient),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-5)


def test_the_slices_and_views_that_the_encoder_takes() -> None:
    torch.manual_seed(0)
    weight, bias = torch.randn(30, 8), torch.randn(30)
    hidden = torch.randn(9, 16)[:, ::2]

    with torch.inference_mode():
        found = linear(hidden[[2, 0, 2]], weight[10:], bias[10:])

    torch.testing.assert_close(found, functional.linear(hidden[[2, 0, 2]], weight[10:], bias[10:]))


@settings(max_examples=40)
@given(SIZES, SIZES, SIZES, st.booleans())
def test_under_autocast_factors_are_rounded_to_bfloat16_and_results_are_float32(
    rows: int, inputs: int, outputs: int, has_bias: bool
) -> None:
    """The oracle rounds the factors and multiplies in float64; a sum is rounded once more."""
    hidden, weight, bias, gradient = drawn(rows, inputs, outputs, has_bias)
    given_parts = [each for each in (hidden, weight, bias) if each is not None]
    a, b, g = (each.detach().bfloat16().double() for each in (hidden, weight, gradient))

    with torch.autocast("cpu", torch.bfloat16):
        found = linear(hidden, weight, bias)
    gradients = torch.autograd.grad(found, given_parts, gradient)

    assert found.dtype == torch.float32
    offset = 0.0 if bias is None else bias.detach()
    torch.testing.assert_close(found.detach() - offset, (a @ b.t()).float(), **ONE_ROUNDING)
    torch.testing.assert_close(gradients[0], (g @ b).float(), **ONE_ROUNDING)
    torch.testing.assert_close(gradients[1], (g.t() @ a).float(), **ONE_ROUNDING)
    if has_bias:
        torch.testing.assert_close(gradients[2], gradient.sum(0), atol=1e-5, rtol=1e-5)


def test_what_another_product_reads_is_left_in_bfloat16_with_the_same_outcome() -> None:
    """Rounded where it is made instead of where it is read."""
    torch.manual_seed(0)
    hidden = torch.randn(21, 16, requires_grad=True)
    first, last = Linear(16, 40), Linear(40, 12)
    kept = Linear(16, 40, feeds_product=True)
    kept.load_state_dict(first.state_dict())
    results = {}

    for name, layer in (("float32", first), ("bfloat16", kept)):
        with torch.autocast("cpu", torch.bfloat16):
            between = layer(hidden)
            found = last(functional.relu(between))[: len(hidden)]
        results[name] = (found, *torch.autograd.grad(found.square().sum(), layer.parameters()))
        assert str(between.dtype) == f"torch.{name}"
        assert {each.dtype for each in results[name]} == {torch.float32}

    for ours, other in zip(results["bfloat16"], results["float32"], strict=True):
        torch.testing.assert_close(ours, other, rtol=0.02, atol=0.02 * other.abs().max().item())
    assert kept(hidden).dtype == torch.float32


def test_weights_that_are_rounded_once_give_the_same_bits() -> None:
    torch.manual_seed(0)
    hidden, weight = torch.randn(21, 16), torch.nn.Parameter(torch.randn(40, 16))
    parts = (slice(None), slice(8), slice(8, None))
    known = RoundedWeights()
    results: list[list[torch.Tensor]] = []

    for context in (nullcontext(), known.in_use(), known.in_use()):
        with context, torch.autocast("cpu", torch.bfloat16):
            found = [linear(hidden, weight[part], None) for part in parts]
        total = torch.stack([each.square().sum() for each in found]).sum()
        results.append([*found, *torch.autograd.grad(total, [weight])])

    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))
    assert len(known._known) == 1


def test_only_the_gradients_that_are_wanted_are_computed() -> None:
    layer = Linear(4, 3)
    layer.weight.requires_grad_(False)
    hidden = torch.randn(5, 4)

    layer(hidden).sum().backward()

    assert layer.weight.grad is None
    torch.testing.assert_close(layer.bias.grad, torch.full((3,), 5.0))


@pytest.mark.parametrize(
    "hidden",
    [torch.randn(0, 4), torch.randn(2, 3, 4), torch.randn(2, 4, dtype=torch.float64)],
    ids=["no rows", "three dimensions", "double"],
)
def test_what_onednn_is_not_given_goes_the_usual_way(hidden: torch.Tensor) -> None:
    weight = torch.randn(3, 4, dtype=hidden.dtype)

    torch.testing.assert_close(linear(hidden, weight, None), functional.linear(hidden, weight))


def test_the_same_product_has_the_same_bits() -> None:
    hidden, weight = torch.randn(37, 64), torch.randn(48, 64)

    assert torch.equal(linear(hidden, weight, None), linear(hidden, weight, None))
