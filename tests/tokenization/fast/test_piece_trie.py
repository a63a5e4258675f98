"""The trie beside WordPiece, which cuts one word at a time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidybert.tokenization import SPECIAL_TOKENS, Vocabulary, WordPiece
from tidybert.tokenization.fast.block_encoder import PieceTrie

SYLLABLES = Vocabulary(
    [
        *SPECIAL_TOKENS,
        *("a", "b", "c", "ab", "bca", "é", "国国", "#", "##", "𝔸b", "ÿ"),
        *("##a", "##b", "##ab", "##bc", "##cab", "##é", "##国", "###", "##𝔸", "##c\0", "##¿"),
    ]
)


def split(words: list[str], vocabulary: Vocabulary = SYLLABLES) -> list[list[str]]:
    encoded = [word.encode() for word in words]
    # Letters that no word may take in stand between the words.
    text = np.frombuffer(b"a" + b"".join(word + b"a" for word in encoded), np.uint8)
    lengths = np.array([len(word) for word in encoded], np.int64)
    starts = 1 + np.cumsum(lengths + 1) - (lengths + 1)
    ids, counts = PieceTrie(vocabulary).split(text, starts, starts + lengths)
    tokens = [vocabulary.id_to_token(index) for index in ids.tolist()]
    ends = np.cumsum(counts).tolist()
    return [tokens[end - count : end] for end, count in zip(ends, counts.tolist(), strict=True)]


def one_by_one(words: list[str], vocabulary: Vocabulary = SYLLABLES) -> list[list[str]]:
    return [WordPiece(vocabulary, vocabulary.tokens).split(word) for word in words]


def test_examples() -> None:
    assert split(["abca", "bcab", "国国é", "d", "abd", "ab"]) == [
        ["[UNK]"],
        ["bca", "##b"],
        ["国国", "##é"],
        ["[UNK]"],
        ["[UNK]"],
        ["ab"],
    ]
    assert split([]) == []


@given(words=st.lists(st.text("abcé国#𝔸ÿ¿\0", min_size=1, max_size=12), max_size=12))
def test_the_pieces_of_wordpiece(words: list[str]) -> None:
    assert split(words) == one_by_one(words)


@given(words=st.lists(st.text(min_size=1, max_size=8), max_size=5))
def test_any_words(words: list[str], vocabulary: Vocabulary) -> None:
    words = [word for word in words if word.isprintable()]
    assert split(words, vocabulary) == one_by_one(words, vocabulary)


@pytest.mark.parametrize("letter", ["a", "é", "国", "𝔸"])
def test_words_over_a_hundred_characters_are_unknown(letter: str) -> None:
    words = [first + letter * number for number in (98, 99, 100) for first in ("a", "é")]
    assert split(words) == one_by_one(words)
    assert split(words)[-2:] == [["[UNK]"]] * 2
    assert len(split([f"a{letter * 99}"])[0]) == 100


def test_tokens_that_no_text_holds() -> None:
    vocabulary = Vocabulary([*SPECIAL_TOKENS, "a\ud800", "a", "x" * 300])
    words = ["a", "x" * 100, "[UNK]"]
    assert split(words, vocabulary) == one_by_one(words, vocabulary)
