"""The fast path: the same ids as one text at a time, whatever is kept, in bounded memory."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidybert.tokenization import BasicTokenizer, BertTokenizer, Vocabulary
from tidybert.tokenization.fast import block_encoder
from tidybert.tokenization.fast.block_encoder import BlockEncoder

# Letters of one to four bytes, marks, what is removed, and what the small vocabulary knows.
FRAGMENTS = [
    *"ab Éé,'。中国각Σİﬁ𝔸§\u00a0\u0301\u200b\ufffd\0\n\x01",
    *("un", "want", "ed", "the ", " good", "[MASK]", "e\u0301", "👩\u200d🚀", "  ", "x" * 101),
]
texts = st.lists(
    st.one_of(st.sampled_from(FRAGMENTS), st.characters(exclude_categories=["Cs", "Cn"])),
    max_size=12,
).map("".join)


def make(vocabulary: Vocabulary, max_entries: int = 1000) -> BlockEncoder:
    return BlockEncoder(BasicTokenizer(), vocabulary, np.dtype(np.uint16), max_entries)


def encode(encoder: BlockEncoder, batch: list[str]) -> list[list[int]]:
    ids, lengths = encoder.encode(batch)
    assert (ids.dtype, lengths.dtype) == (np.uint16, np.int64)
    assert len(lengths) == len(batch)
    ends = np.cumsum(lengths).tolist()
    assert len(ids) == (ends[-1] if ends else 0)
    return [ids[end - n : end].tolist() for end, n in zip(ends, lengths.tolist(), strict=True)]


def one_by_one(tokenizer: BertTokenizer, batch: list[str]) -> list[list[int]]:
    return [tokenizer.encode(text, add_special_tokens=False).input_ids for text in batch]


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of a few texts and batches of a few chunks."""
    monkeypatch.setattr(block_encoder, "_GROUP", 40)
    monkeypatch.setattr(block_encoder, "_BATCH", 5)


def test_examples(vocabulary: Vocabulary) -> None:
    encoder = make(vocabulary)
    for _ in range(2):
        found = encode(encoder, ["UNwantéd,running", "", "the\u00a0good", " "])
        tokens = [[vocabulary.id_to_token(index) for index in ids] for ids in found]
        assert tokens == [
            ["un", "##want", "##ed", ",", "runn", "##ing"], [], ["the", "good"], [],
        ]  # fmt: skip
    assert encode(encoder, []) == []
    assert encode(encoder, [""]) == [[]]


@given(batch=st.lists(texts, max_size=6))
def test_any_texts(batch: list[str], tokenizer: BertTokenizer, vocabulary: Vocabulary) -> None:
    encoder = make(vocabulary)
    expected = one_by_one(tokenizer, batch)
    assert encode(encoder, batch) == expected
    assert encode(encoder, batch[::-1]) == expected[::-1]


@given(batch=st.lists(texts, max_size=12))
def test_any_texts_by_way_of_the_reference(
    batch: list[str], vocabulary: Vocabulary, reference: Callable[[BertTokenizer], Any]
) -> None:
    cased = BertTokenizer(vocabulary, do_lower_case=False, strip_accents=True)
    encoder = BlockEncoder(cased._basic, vocabulary, np.dtype(np.uint16))
    expected = reference(cased).encode_batch(batch, add_special_tokens=False)
    assert encode(encoder, batch) == [encoding.ids for encoding in expected]


@pytest.mark.parametrize("letter", ["a", "é", "ᄒ", "𝔸"])
def test_chunks_of_every_length(
    letter: str, tokenizer: BertTokenizer, vocabulary: Vocabulary
) -> None:
    encoder = make(vocabulary)
    lengths = [*range(1, 40), 99, 100, 101, 102]
    chunks = [
        chunk
        for n in lengths
        for chunk in (letter * n, "a" + letter * n, letter * n + "x", "s" * 8 + letter * n)
    ]
    for batch in (chunks, chunks[::-1], [" ".join(chunks)], ["\0".join(chunks)]):
        assert encode(encoder, batch) == one_by_one(tokenizer, batch)


def test_chunks_with_the_same_beginning_are_told_apart(vocabulary: Vocabulary) -> None:
    encoder = make(vocabulary)
    # Keys of one, two and four words that share their first, and longer ones, which are not kept.
    for length in (8, 16, 32, 40, 7, 9, 15, 17, 31, 33):
        for last in "abs":
            (ids,) = encode(encoder, ["a" * (length - 1) + last])
            tokens = [vocabulary.id_to_token(index) for index in ids]
            assert tokens == ["a", *["##a"] * (length - 2), f"##{last}"]


def test_every_chunk_is_kept_once(vocabulary: Vocabulary) -> None:
    encoder = make(vocabulary)
    for batch in (["the good", "GOOD the the,"], ["a" * 8, "b" * 16 + " a"], ["s" * 32 + "\u00a0"]):
        encode(encoder, batch)
    assert [len(table) for table in encoder._tables] == [5, 1, 0]


def test_long_chunks_are_worked_out_each_time(vocabulary: Vocabulary) -> None:
    encoder = make(vocabulary)
    before = encoder.nbytes
    for _ in range(3):
        assert [len(ids) for ids in encode(encoder, ["a" * 33 + " " + "a" * 99])] == [132]
    assert encoder.nbytes == before


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("max_entries", [0, 3, 1000])
def test_full_tables_and_many_batches(
    max_entries: int, tokenizer: BertTokenizer, vocabulary: Vocabulary
) -> None:
    encoder = make(vocabulary, max_entries)
    draw = np.random.default_rng(0)
    for _ in range(20):
        batch = ["".join(draw.choice(FRAGMENTS, draw.integers(30))) for _ in range(10)]
        assert encode(encoder, batch) == one_by_one(tokenizer, batch)
        assert all(len(table) <= max_entries + 5 for table in encoder._tables)
    assert any(len(table) > 10 for table in encoder._tables) == (max_entries == 1000)


def test_too_many_ids_are_forgotten(
    vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_encoder, "MAX_IDS", 50)
    encoder = make(vocabulary)
    for number in range(100):
        encode(encoder, ["ab" * 8 + str(2) * (number % 16)])
        assert len(encoder._pool) <= 50 + 32


def test_memory_is_bounded(vocabulary: Vocabulary) -> None:
    encoder = BlockEncoder(BasicTokenizer(), vocabulary, np.dtype(np.uint16))
    largest = 0
    for start in range(0, 1_200_000, 50_000):
        numbers = range(start, start + 50_000)
        encoder.encode([f"{n:x} {n:x}{n:09} {n:x}{n:020}" for n in numbers])
        largest = max(largest, encoder.nbytes - encoder._trie.nbytes)
    # As benchmarks/NOTES.md says.
    assert 20e6 < largest < 55e6


def test_an_interruption_leaves_no_key_without_ids(
    vocabulary: Vocabulary, tokenizer: BertTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = make(vocabulary)

    def interrupted(*arguments: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(encoder._trie, "split", interrupted)
        with pytest.raises(KeyboardInterrupt):
            encoder.encode(["the good"])
    assert encode(encoder, ["the good"]) == one_by_one(tokenizer, ["the good"])


def test_threads_take_turns(
    vocabulary: Vocabulary, tokenizer: BertTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = make(vocabulary)
    split = encoder._trie.split
    is_splitting, may_go_on = threading.Event(), threading.Event()

    def slow_split(*arguments: Any) -> Any:
        is_splitting.set()
        assert may_go_on.wait(10)
        return split(*arguments)

    monkeypatch.setattr(encoder._trie, "split", slow_split)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(encode, encoder, ["the good"])
        assert is_splitting.wait(10)
        # Its chunks have keys by now, and no ids yet.
        second = pool.submit(encode, encoder, ["good the"])
        with pytest.raises(TimeoutError):
            second.result(timeout=0.1)
        may_go_on.set()
        assert first.result() + second.result() == one_by_one(tokenizer, ["the good", "good the"])
