"""Batches of one shape: what is packed, what is padding, and that nothing is lost."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidybert.pretraining.batches.masked_rows import BatchShape, shape_for


def predictions_of(lengths: np.ndarray) -> np.ndarray:
    return np.maximum(1, np.rint(0.15 * lengths)).astype(np.int64)


def test_sequences_are_packed_in_their_order_until_padding_would_not_fit() -> None:
    shape = BatchShape(num_rows=20, num_sequences=4, num_predictions=9, longest=8)

    cut = shape.cut(np.array([8, 8, 3, 2, 8]), np.array([1, 1, 1, 1, 1]))

    # 8 + 8 + 3 leave one row for the one sequence of padding; 3 + 2 + 8 leave seven for one.
    assert [each.tolist() for each in cut] == [[0, 1, 2], [3, 4]]
    assert shape.padding_lengths(19, 3) == (1,)
    assert shape.padding_lengths(10, 2) == (5, 5)
    assert shape.padding_lengths(0, 0) == (5, 5, 5, 5)


def test_a_batch_ends_where_its_predictions_do_not_fit() -> None:
    shape = BatchShape(num_rows=40, num_sequences=6, num_predictions=5, longest=8)

    cut = shape.cut(np.array([6, 6, 6, 6]), np.array([2, 2, 2, 2]))

    assert [each.tolist() for each in cut] == [[0, 1], [2, 3]]


def test_a_batch_has_room_for_the_fraction_of_all_tokens_and_a_twentieth_more() -> None:
    # A fifth of the tokens is predicted; the mean of the sequences' own fractions is higher.
    lengths, predictions = np.repeat([8, 32], 10), np.full(20, 4)

    shape = shape_for(lengths, predictions, 32, 4096, 4096)

    assert shape.num_rows == 2176
    assert shape.num_predictions == int(1.05 * 0.2 * 2176) + 4 + 1


@settings(deadline=None)
@given(
    lengths=st.lists(st.integers(5, 32), min_size=1, max_size=300),
    longest=st.sampled_from([32, 40]),
    micro=st.integers(80, 3000),
    share=st.integers(32, 4000),
    sample=st.integers(1, 300),
)
def test_any_sequences_fit_in_full(
    lengths: list[int], longest: int, micro: int, share: int, sample: int
) -> None:
    all_lengths = np.array(lengths)
    predictions = predictions_of(all_lengths)

    shape = shape_for(all_lengths[:sample], predictions[:sample], longest, share, micro)
    batches = shape.cut(all_lengths, predictions)

    assert 2 * longest <= shape.num_rows <= micro
    assert np.concatenate(batches).tolist() == list(range(len(lengths)))
    for batch in batches:
        tokens = int(all_lengths[batch].sum())
        padding = shape.padding_lengths(tokens, len(batch))
        assert tokens + sum(padding) == shape.num_rows
        assert len(batch) + len(padding) == shape.num_sequences
        assert all(1 <= each <= longest for each in padding)
        assert predictions[batch].sum() <= shape.num_predictions


@pytest.mark.parametrize(("tokens", "micro", "most"), [(16384, 32768, 0.02), (65536, 8192, 0.04)])
def test_a_step_of_like_sequences_has_little_padding(tokens: int, micro: int, most: float) -> None:
    random = np.random.default_rng(0)
    lengths = np.where(random.random(2000) < 0.8, 128, random.integers(5, 129, 2000))
    predictions = predictions_of(lengths)
    shape = shape_for(lengths[:1000], predictions[:1000], 128, tokens, micro)
    step = lengths[1000:][np.cumsum(lengths[1000:]) <= tokens]

    batches = shape.cut(step, predictions[1000 : 1000 + len(step)])

    assert 1 - step.sum() / (len(batches) * shape.num_rows) < most
