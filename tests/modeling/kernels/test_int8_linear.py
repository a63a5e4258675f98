"""Linear layers in int8: integers, their plain body, and a row's bits in any batch."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tidybert.modeling.kernels import linear as module
from tidybert.modeling.kernels import processor
from tidybert.modeling.kernels.linear import (
    MOST_ROWS,
    Int8Linear,
    largest_weight,
    plain_int8_linear,
    rounded_weight,
)

needs_int8 = pytest.mark.skipif(not largest_weight(), reason="no exact 8-bit products here")


def drawn(rows: int, inputs: int, outputs: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows * inputs + outputs)
    shapes = ((rows, inputs), (outputs, inputs), (outputs,))
    hidden, weight, bias = (torch.randn(shape, generator=generator) for shape in shapes)
    return hidden, weight, bias


def rounding_error(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """(T, O): the deviation of a product's error, where each rounding is off by half a step at most

    and anything less as often: a twelfth of the step's square.
    """
    _, scales = rounded_weight(weight, largest_weight())
    steps = (hidden.amax(1) - hidden.amin(1)) / 255
    of_weights = scales.square() * hidden.square().sum(1, keepdim=True)
    of_rows = steps[:, None].square() * weight.square().sum(1)
    return ((of_weights + of_rows) / 12).sqrt()


def test_a_weight_becomes_integers_and_a_scale_for_each_output() -> None:
    weight = torch.tensor([[1.27, -0.635, 0.01], [0.0, 0.0, 0.0], [-254.0, 2.0, 1.1]])

    integers, scales = rounded_weight(weight, 127)

    assert integers.tolist() == [[127, -64, 1], [0, 0, 0], [-127, 1, 1]]
    assert scales[[0, 2]].tolist() == pytest.approx([0.01, 2.0])


@needs_int8
def test_values_on_the_grid_are_exact() -> None:
    hidden = torch.tensor([[0.0, 255.0, 3.0, 7.0], [-1.0, 0.0, 254.0, 5.0]])
    weight = torch.tensor([[largest_weight() * 1.0, 2.0, -3.0, 1.0]])

    found = Int8Linear(weight, torch.tensor([0.5]))(hidden)

    assert torch.equal(found, hidden @ weight.T + 0.5)


@needs_int8
@settings(max_examples=30)
@given(st.integers(1, 300), st.integers(1, 20), st.integers(1, 70))
def test_it_is_the_plain_body_and_near_float32(rows: int, quarter: int, outputs: int) -> None:
    hidden, weight, bias = drawn(rows, 4 * quarter, outputs)

    found = Int8Linear(weight, bias)(hidden)

    plain = plain_int8_linear(hidden, weight, bias, largest_weight())
    exact = hidden @ weight.T + bias
    # A value halfway between two integers may go either way: a step of one of them.
    step = (hidden.amax(1) - hidden.amin(1)).max() / 255 * weight.abs().max()
    assert (found - plain).abs().max() <= 1.01 * step + 1e-4
    assert ((found - exact).abs() <= 6 * rounding_error(hidden, weight) + 1e-4).all()


@needs_int8
@pytest.mark.parametrize("threads", [1, 2])
def test_a_row_has_the_same_bits_in_any_batch(threads: int) -> None:
    hidden, weight, bias = drawn(2 * MOST_ROWS + 45, 96, 160)
    linear = Int8Linear(weight, bias)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        whole = linear(hidden)
        for start, end in ((0, 1), (7, 9), (30, 49), (100, 228), (1, 130), (290, 301)):
            assert torch.equal(linear(hidden[start:end]), whole[start:end])
        assert torch.equal(linear(hidden.T.contiguous().T), whole)
    finally:
        torch.set_num_threads(before)


@needs_int8
def test_channels_of_zeros_and_of_any_size_and_constant_rows() -> None:
    hidden, weight, bias = drawn(9, 64, 5)
    scales = torch.tensor([0.0, 1e-40, 1e-20, 1.0, 1e6])
    weight = weight * scales[:, None]
    hidden[3], hidden[4], hidden[5] = 0.0, 2.5, 1e6 * hidden[5]

    found = Int8Linear(weight, bias)(hidden)

    exact = hidden @ weight.T + bias
    assert torch.equal(found[:, 0], bias[:1].expand(9))
    torch.testing.assert_close(found[3], bias)
    assert ((found - exact).abs() <= 6 * rounding_error(hidden, weight) + 1e-4).all()


@needs_int8
def test_a_hash_tells_layers_apart() -> None:
    _, weight, bias = drawn(1, 32, 8)
    other = weight.clone()
    other[3, 5] += 1.0

    assert Int8Linear(weight, bias).digest == Int8Linear(weight.clone(), bias).digest
    given = ((weight, bias), (other, bias), (weight, -bias))
    assert len({Int8Linear(*each).digest for each in given}) == 3


_PROBE = """
import torch
from tidybert.modeling.kernels.linear import Int8Linear, largest_weight, plain_int8_linear
hidden, weight = torch.arange(640.0).view(20, 32).sin(), torch.arange(1600.0).view(50, 32).cos()
found = Int8Linear(weight, torch.zeros(50))(hidden)
plain = plain_int8_linear(hidden, weight, torch.zeros(50), largest_weight())
print(largest_weight(), bool((found - plain).abs().max() < 1e-4))
"""


@needs_int8
def test_without_vnni_weights_have_seven_bits() -> None:
    """Where pairs of products saturate in 16 bits, smaller weights stay exact."""
    done = subprocess.run(
        [sys.executable, "-c", _PROBE],
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.split() == ["63", "True"]


def test_without_operators_or_with_wrong_ones_there_is_no_int8(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operators = module._operators()
    wrong = SimpleNamespace(
        prepack=operators.prepack,
        product=lambda *given: operators.product(*given) + 1.0,
        round_rows=operators.round_rows,
    )
    for fake in (SimpleNamespace(), wrong):
        monkeypatch.setattr(module, "_operators", lambda fake=fake: fake)
        assert largest_weight.__wrapped__() == 0


def test_another_processor_has_no_int8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor.platform, "machine", lambda: "aarch64")

    assert largest_weight.__wrapped__() == 0
