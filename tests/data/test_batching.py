"""Batches: cut by tokens, laid end to end; the order of the examples follows from the seed."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from tidybert.data.batching import collate, cut_by_tokens, epoch_order
from tidybert.data.features import Features


def make_features(ids: list[int], types: list[int], lengths: tuple[int, ...] = ()) -> Features:
    return Features(
        np.array(ids, dtype=np.int32), np.array(types, dtype=np.uint8), len(ids), lengths=lengths
    )


def test_the_longest_that_fits_comes_next_and_equal_ones_in_their_order() -> None:
    batches = cut_by_tokens([3, 5, 2, 5, 1], tokens_per_batch=8)

    assert [batch.tolist() for batch in batches] == [[1, 0], [3, 2, 4]]


def test_a_sequence_longer_than_the_budget_is_a_batch_of_its_own() -> None:
    assert [batch.tolist() for batch in cut_by_tokens([9, 1, 1], 4)] == [[0], [1, 2]]
    assert cut_by_tokens([], 4) == []


@given(st.lists(st.integers(1, 60), max_size=60), st.integers(1, 200))
def test_every_sequence_is_in_one_batch_within_the_budget(lengths: list[int], budget: int) -> None:
    batches = cut_by_tokens(np.array(lengths, dtype=np.int64), budget)

    assert sorted(int(index) for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or sum(lengths[index] for index in batch) <= budget


@given(st.lists(st.integers(1, 60), max_size=60), st.integers(1, 200))
def test_what_comes_later_would_not_have_fitted(lengths: list[int], budget: int) -> None:
    left = list(lengths)
    for batch in cut_by_tokens(lengths, budget):
        room = max(budget, *left)
        for index in batch:
            assert lengths[index] == max(length for length in left if length <= room)
            left.remove(lengths[index])
            room -= lengths[index]
        assert all(length > room for length in left)


def test_collating_lays_sequences_and_types_end_to_end() -> None:
    features = [make_features([2, 7, 3], [0] * 3), make_features([2, 3, 8, 3], [0, 0, 1, 1])]

    batch = collate(features)

    assert batch.rows.input_ids.tolist() == [2, 7, 3, 2, 3, 8, 3]
    assert batch.rows.token_type_ids.tolist() == [0, 0, 0, 0, 0, 1, 1]
    assert batch.rows.lengths == (3, 4)
    assert batch.features is features
    assert batch.to("cpu") is batch
    assert batch.to(torch.device("cpu")) is batch


def test_batches_move_to_another_device() -> None:
    batch = collate([make_features([2, 3], [0, 0])])

    moved = batch.to("meta")

    assert moved.rows.input_ids.device.type == "meta"
    assert moved.features is batch.features


@given(st.integers(1, 200), st.integers(0, 2**32), st.integers(0, 50))
def test_an_epochs_order_is_a_permutation_that_seed_and_epoch_decide(
    count: int, seed: int, epoch: int
) -> None:
    order = epoch_order(count, seed, epoch)

    assert sorted(order.tolist()) == list(range(count))
    assert np.array_equal(order, epoch_order(count, seed, epoch))


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = {tuple(epoch_order(50, seed, epoch)) for seed in range(3) for epoch in range(3)}

    assert len(orders) == 9


def test_the_sequences_of_one_example_stay_together() -> None:
    choices = make_features([2, 7, 3, 2, 8, 9, 3], [0] * 7, lengths=(3, 4))

    rows = collate([choices, make_features([2, 3], [0, 1])]).rows

    assert rows.lengths == (3, 4, 2)
    assert rows.cu_seqlens.tolist() == [0, 3, 7, 9]
    assert rows.position_ids.tolist() == [0, 1, 2, 0, 1, 2, 3, 0, 1]
