"""Draws by key and counter: known values, independence of order, and the shapes of their laws."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tidybert.pretraining.batches.random_streams import (
    Purpose,
    below,
    heads,
    lower_half,
    permuted,
    random_bits,
    uniform,
)

words = st.integers(0, 2**63 - 1)
MANY = np.arange(100_000)


def test_the_first_word_counts_through_splitmix64_from_seed_0() -> None:
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]

    assert [int(random_bits(number)) for number in range(4)] == published
    assert random_bits(np.arange(4)).tolist() == published


@given(st.lists(words, min_size=1, max_size=4))
def test_integers_and_arrays_give_the_same_bits(key: list[int]) -> None:
    alone = int(random_bits(*key))

    for split in range(len(key)):
        arrays = [np.array([word]) for word in key[split:]]
        assert random_bits(*key[:split], *arrays).tolist() == [alone]


def test_words_broadcast_and_their_order_matters() -> None:
    table = random_bits(7, np.arange(3)[:, None], np.arange(5))

    assert table.shape == (3, 5)
    assert int(table[2, 4]) == int(random_bits(7, 2, 4))
    assert int(random_bits(7, 4, 2)) != int(random_bits(7, 2, 4))
    assert len(np.unique(random_bits(7, np.arange(300)[:, None], np.arange(300)))) == 90_000


def test_the_arguments_are_left_as_they_are() -> None:
    given_words = np.arange(4, dtype=np.uint64)
    random_bits(given_words, given_words)
    assert given_words.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("bit", [0, 1, 7, 31, 40, 62])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_bit_of_any_word_turns_half_the_bits(bit: int, place: int) -> None:
    key = [np.arange(2000), np.full(2000, 5), np.full(2000, 9)]
    turned = [*key]
    turned[place] = key[place] ^ (1 << bit)

    changed = (random_bits(*key) ^ random_bits(*turned)).view(np.uint8)
    by_bit = np.unpackbits(changed.reshape(-1, 8), axis=1).mean(axis=0)

    assert abs(by_bit - 0.5).max() < 5 * math.sqrt(0.25 / 2000)


def test_uniform_numbers_are_uniform() -> None:
    drawn = uniform(random_bits(3, MANY))

    assert 0.0 <= drawn.min() < drawn.max() < 1.0
    assert stats.kstest(drawn, "uniform").pvalue > 1e-4
    assert uniform(np.array([0, 2**64 - 1], np.uint64)).tolist() == [0.0, 1.0 - 2.0**-53]


@pytest.mark.parametrize("limit", [1, 2, 7, 100])
def test_integers_below_a_limit_are_equally_likely(limit: int) -> None:
    bits = random_bits(4, MANY)
    for drawn in (below(bits, limit), below(lower_half(bits), limit)):
        counts = np.bincount(drawn, minlength=limit)
        assert len(counts) == limit
        assert limit == 1 or stats.chisquare(counts).pvalue > 1e-4


def test_each_draw_has_its_own_limit() -> None:
    bits = np.array([0, 2**64 - 1, 2**63], np.uint64)
    assert below(bits, np.array([5, 5, 2**32])).tolist() == [0, 4, 2**31]


def test_heads_are_the_ones_among_as_many_bits() -> None:
    counts = np.array([0, 1, 5, 63, 64, 65, 130, 1000])
    place = np.arange(8)

    found = heads(counts, 1, 2, place)

    for number, count in enumerate(counts):
        wanted = 0
        for start in range(0, count, 64):
            bits = int(random_bits(1, 2, number, start))
            wanted += (bits >> max(0, 64 - (count - start))).bit_count()
        assert found[number] == wanted
    assert heads(np.zeros(0, np.int64), 1).tolist() == []


def test_heads_are_binomial() -> None:
    found = heads(np.full(20_000, 100), 9, np.arange(20_000))

    assert abs(found.mean() - 50) < 5 * math.sqrt(25 / 20_000)
    assert abs(found.var() / 25 - 1) < 5 * math.sqrt(2 / 20_000)


@given(st.integers(1, 3000), words)
def test_a_permutation_holds_every_number_once(size: int, key: int) -> None:
    found = permuted(np.arange(size), size, key)

    assert np.sort(found).tolist() == list(range(size))
    some = np.arange(0, size, 7)
    assert permuted(some, size, key).tolist() == found[some].tolist()


def test_every_permutation_is_equally_likely() -> None:
    counts = Counter(tuple(permuted(np.arange(4), 4, key).tolist()) for key in range(4800))

    assert len(counts) == 24
    assert stats.chisquare(list(counts.values())).pvalue > 1e-4


def test_a_part_of_a_large_permutation_costs_little_and_differs_by_key() -> None:
    first, second = (permuted(np.arange(1000), 10**12, key) for key in (1, 2))

    assert len(set(first.tolist())) == 1000
    assert first.max() < 10**12
    assert not set(first.tolist()) & set(second.tolist())
    assert stats.kstest(first / 1e12, "uniform").pvalue > 1e-4


def test_no_two_purposes_share_a_number() -> None:
    assert len(set(Purpose)) == len(Purpose.__members__)
