"""The cache: the same ids whether a chunk was seen or not, in bounded memory."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidybert.errors import TextError
from tidybert.tokenization import BasicTokenizer, Vocabulary, WordPiece
from tidybert.tokenization.fast.batch_encoder import MAX_CHUNK_LENGTH, ChunkCache, chunks
from tidybert.tokenization.fast.block_encoder import ChunkTable


def make(vocabulary: Vocabulary, max_entries: int = 100) -> ChunkCache:
    return ChunkCache(BasicTokenizer(), vocabulary, np.uint16, max_entries)


def tokens(vocabulary: Vocabulary, encoded: bytes) -> list[str]:
    return [vocabulary.id_to_token(index) for index in np.frombuffer(encoded, np.uint16)]


def test_a_chunk_and_its_pieces_are_kept(vocabulary: Vocabulary) -> None:
    cache = make(vocabulary)
    expected = ["un", "##want", "##ed", ",", "runn", "##ing"]
    assert tokens(vocabulary, cache["UNwantéd,running"]) == expected
    assert set(cache) == {"UNwantéd,running", "UNwantéd", ",", "running"}
    assert tokens(vocabulary, cache["UNwantéd,running"]) == expected


def test_white_space_inside_a_chunk(vocabulary: Vocabulary) -> None:
    cache = make(vocabulary)
    assert tokens(vocabulary, cache["the\tgood\nhello\u3000world\u2028a"]) == [
        *("the", "good", "hello", "world", "a")
    ]
    assert cache[""] == b""
    assert cache["\n\t\x00"] == b""


def test_memory_is_bounded(vocabulary: Vocabulary) -> None:
    cache = make(vocabulary, max_entries=10)
    fresh = make(vocabulary)
    for number in range(200):
        chunk = f"a{number % 37},s{number}"
        assert cache[chunk] == fresh[chunk]
        assert len(cache) <= 10
        assert len(cache._old) <= 10
    assert all(len(chunk) <= MAX_CHUNK_LENGTH for chunk in cache)


def test_what_is_asked_for_again_outlives_its_generation(vocabulary: Vocabulary) -> None:
    cache = make(vocabulary, max_entries=3)
    for number in range(20):
        assert tokens(vocabulary, cache["un"]) == ["un"]
        cache[f"a{number}"]
        assert "un" in {**cache, **cache._old}
    assert "a0" not in {**cache, **cache._old}


def test_long_chunks_are_worked_out_each_time(vocabulary: Vocabulary) -> None:
    cache = make(vocabulary)
    long = "国" * (MAX_CHUNK_LENGTH + 1)
    assert tokens(vocabulary, cache[long]) == ["国"] * len(long)
    assert set(cache) == {"国"}


def test_nothing_of_a_refused_chunk_stays(vocabulary: Vocabulary) -> None:
    cache = make(vocabulary)
    for _ in range(2):
        with pytest.raises(TextError, match=r"U\+DC00"):
            cache["ab\udc00"]
    assert not cache


@given(chunks=st.lists(st.text("aBé,\u0301\u200b国 \nx", max_size=6), max_size=30))
def test_seen_or_not_a_chunk_has_the_same_ids(chunks: list[str], vocabulary: Vocabulary) -> None:
    cache = make(vocabulary, max_entries=5)
    for chunk in chunks:
        ids = [
            index
            for word in BasicTokenizer().split(chunk)
            for index in WordPiece(vocabulary, range(len(vocabulary))).split(word)
        ]
        assert np.frombuffer(cache[chunk], np.uint16).tolist() == ids


@given(st.text("aB,.-()\"'\u0301 国\n", max_size=12))
def test_cutting_a_text_into_chunks_leaves_its_words(text: str) -> None:
    basic = BasicTokenizer()
    assert [word for chunk in chunks(text) for word in basic.split(chunk)] == basic.split(text)


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
