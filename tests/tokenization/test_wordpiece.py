"""WordPiece on single words: Google's own examples, and a slow reading of the definition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidybert.tokenization import SPECIAL_TOKENS, Vocabulary, WordPiece
from tidybert.tokenization.wordpiece import join_pieces, piece_ends

# The vocabulary of tokenization_test.py in Google's BERT.
VOCABULARY = Vocabulary(
    [*SPECIAL_TOKENS, "want", "##want", "##ed", "wa", "un", "runn", "##ing", ","]
)
SYLLABLES = Vocabulary(
    [*SPECIAL_TOKENS, *"abc", "ab", "bca", "##a", "##b", "##ab", "##bc", "##cab", "##", "##é"]
)


def pieces(word: str, vocabulary: Vocabulary = VOCABULARY) -> list[str]:
    return WordPiece(vocabulary, vocabulary.tokens).split(word)


def longest_first(word: str, vocabulary: Vocabulary) -> list[str]:
    """The definition, read literally."""
    found: list[str] = []
    rest = word
    while rest:
        prefix = "##" if found else ""
        fitting = [n for n in range(1, len(rest) + 1) if prefix + rest[:n] in vocabulary]
        if not fitting:
            return ["[UNK]"]
        found.append(prefix + rest[: fitting[-1]])
        rest = rest[fitting[-1] :]
    return found


def test_the_original_examples() -> None:
    assert pieces("unwanted") == ["un", "##want", "##ed"]
    assert pieces("running") == ["runn", "##ing"]
    assert pieces("unwantedX") == ["[UNK]"]
    assert pieces("") == []


def test_ends_say_where_the_pieces_end() -> None:
    for word, ends in {"unwanted": [2, 6, 8], "want": [4], "unwantedX": [9], "": []}.items():
        assert piece_ends(word, pieces(word)) == ends


def test_any_values_stand_for_the_tokens() -> None:
    assert WordPiece(VOCABULARY, range(len(VOCABULARY))).split("unwanted") == [9, 6, 7]


def test_words_over_a_hundred_characters_are_unknown() -> None:
    assert pieces("a" * 100, SYLLABLES) == ["a"] + ["##a"] * 99
    assert pieces("a" * 101, SYLLABLES) == ["[UNK]"]
    long = Vocabulary([*SPECIAL_TOKENS, "a" * 101])
    assert pieces("a" * 101, long) == ["[UNK]"]


@given(st.text("abcé#", max_size=12))
def test_longest_piece_first(word: str) -> None:
    assert pieces(word, SYLLABLES) == longest_first(word, SYLLABLES)


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (["un", "##want", "##ed", ",", "runn", "##ing", "!"], "unwanted, running!"),
        (["do", "##n", "'", "t", "say", "(", "it", ")", "."], "don't say (it)."),
        (["at", "10", ":", "30", ",", "3", ".", "5", "%"], "at 10:30, 3.5%"),
        (["1", ",", "234", ",", "567", "in", "1990", ",", "12"], "1,234,567 in 1990, 12"),
        (["中", "国", "。", "ok"], "中国。 ok"),
        (["##ed", "##s"], "eds"),
        (["##"], "##"),
        ([], ""),
    ],
)
def test_spacing(tokens: list[str], text: str) -> None:
    assert join_pieces(tokens) == text
