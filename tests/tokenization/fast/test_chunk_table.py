"""The hash table beside a dictionary: growth, equal keys in one call, and keys that all collide."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidybert.tokenization.fast.chunks import ChunkTable

# Few different words, so that keys share some of theirs and come again.
WORDS = [1, 2, 3, 2**8, 2**63, 2**64 - 1]
calls_of_two_words = st.lists(
    st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from([0, *WORDS])), max_size=12),
    max_size=8,
)


def columns(keys: list[tuple[int, ...]], width: int) -> list[np.ndarray]:
    return list(np.array(keys, np.uint64).reshape(-1, width).T)


def check_beside_a_dictionary(table: ChunkTable, calls: list[list[tuple[int, ...]]]) -> None:
    """Every key keeps the value that it got when it was added."""
    expected: dict[tuple[int, ...], int] = {}
    for keys in calls:
        slots, new = table.find_or_add(columns(keys, table.width))
        added = [keys[index] for index in new]
        assert len(set(added)) == len(added)
        assert set(added) == set(keys) - set(expected)
        for key in added:
            expected[key] = len(expected)
        table.values[slots[new]] = [expected[key] for key in added]
        assert table.values[slots].tolist() == [expected[key] for key in keys]
        assert len(table) == len(expected)


@given(calls=calls_of_two_words)
def test_it_holds_what_a_dictionary_holds(calls: list[list[tuple[int, ...]]]) -> None:
    check_beside_a_dictionary(ChunkTable(2), calls)


@given(calls=calls_of_two_words)
def test_keys_that_all_collide(calls: list[list[tuple[int, ...]]]) -> None:
    table = ChunkTable(2)
    table._factors = [np.uint64(0)] * 2
    check_beside_a_dictionary(table, calls)


@pytest.mark.parametrize("width", [1, 2, 4])
def test_it_grows_and_is_at_most_half_full(width: int) -> None:
    table = ChunkTable(width)
    draw = np.random.default_rng(0)
    calls = [
        [tuple(key) for key in draw.integers(1, 9000, (size, width)).tolist()]
        for size in (1, 511, 3000, 1, 5000, 9000)
    ]
    check_beside_a_dictionary(table, calls)
    num_slots = table.nbytes // (8 * (width + 1))
    assert 2 * len(table) <= num_slots <= 4 * (len(table) + max(map(len, calls)))


def test_a_full_round_of_probing_goes_on_at_the_start() -> None:
    table = ChunkTable(1)
    # All keys have the last slot for their home.
    table._factors = [np.uint64(0)]
    homes = table._homes
    table._homes = lambda keys: homes(keys) - 1  # type: ignore[method-assign]
    check_beside_a_dictionary(table, [[(key,) for key in range(1, 20)]] * 2)


def test_a_cleared_table_is_empty() -> None:
    table = ChunkTable(1)
    empty = table.nbytes
    keys = [(key,) for key in range(1, 3000)]
    check_beside_a_dictionary(table, [keys])
    assert table.nbytes > empty
    table.clear()
    assert (len(table), table.nbytes) == (0, empty)
    check_beside_a_dictionary(table, [keys])
