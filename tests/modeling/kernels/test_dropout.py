"""Dropout: how much is dropped, how the rest is scaled, and what comes back."""

import math

import pytest
import torch

from tidybert.modeling.kernels.dropout import drawing_from, dropout, dropout_add, keep_mask


def test_in_evaluation_and_at_probability_zero_nothing_changes() -> None:
    hidden = torch.randn(3, 4)

    assert dropout(hidden, 0.5, training=False) is hidden
    assert dropout(hidden, 0.0, training=True) is hidden
    residual = torch.randn(3, 4)
    assert torch.equal(dropout_add(hidden, residual, 0.5, training=False), hidden + residual)


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_the_share_dropped_is_the_probability(probability: float) -> None:
    torch.manual_seed(0)
    count = 400_003

    dropped = int((dropout(torch.ones(count), probability, training=True) == 0).sum())

    # Five standard deviations of a binomial: about one seed in two million would fail.
    bound = 5 * math.sqrt(count * probability * (1 - probability))
    assert abs(dropped - count * probability) < bound


@pytest.mark.parametrize("probability", [0.1, 0.25, 0.9])
def test_what_is_kept_is_scaled_so_that_the_mean_stays(probability: float) -> None:
    torch.manual_seed(0)
    hidden = torch.randn(64, 33)

    result = dropout(hidden, probability, training=True)

    kept = result != 0
    rounded = round(probability * 65536) / 65536
    torch.testing.assert_close(result[kept], hidden[kept] / (1 - rounded))


def test_elements_that_share_a_draw_are_dropped_independently() -> None:
    torch.manual_seed(0)
    mask, _ = keep_mask(torch.Size((100_000, 4)), 0.5)

    correlation = torch.corrcoef(mask.float().T)

    # The standard deviation of a correlation of independent columns is 1 / sqrt(rows).
    assert (correlation - torch.eye(4)).abs().max() < 5 / math.sqrt(100_000)


def test_the_seed_decides_the_mask() -> None:
    def masked(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return dropout(torch.ones(1000), 0.3, training=True)

    assert torch.equal(masked(7), masked(7))
    assert not torch.equal(masked(7), masked(8))


def test_a_thread_draws_from_the_generator_it_is_given() -> None:
    ones = torch.ones(1000)
    before = torch.get_rng_state()
    with drawing_from(torch.Generator().manual_seed(5)):
        first = dropout(ones, 0.5, training=True)

    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(5)
    assert torch.equal(first, dropout(ones, 0.5, training=True))


@pytest.mark.parametrize("shape", [(1,), (7,), (3, 5), (2, 3, 5)])
def test_any_number_of_elements_has_a_mask(shape: tuple[int, ...]) -> None:
    mask, scale = keep_mask(torch.Size(shape), 0.25)

    assert mask.shape == shape
    assert set(mask.float().unique().tolist()) <= {0.0, 1.0}
    assert scale == pytest.approx(4 / 3)


def test_other_types_than_float32_are_dropped_too() -> None:
    torch.manual_seed(0)
    hidden = torch.ones(10_000, dtype=torch.float64)

    for result in (dropout(hidden, 0.5, True), dropout_add(hidden, 0 * hidden, 0.5, True)):
        assert result.dtype == torch.float64
        assert set(result.unique().tolist()) == {0.0, 2.0}


def test_a_probability_next_to_one_keeps_what_is_finite() -> None:
    assert torch.isfinite(dropout(torch.ones(100), 0.9999999, training=True)).all()
