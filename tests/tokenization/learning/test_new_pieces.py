"""New pieces: the most useful first, honest savings, places, and text that decodes alike."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidybert.errors import VocabularyError
from tidybert.tokenization import SPECIAL_TOKENS, BertTokenizer, Vocabulary
from tidybert.tokenization.learning.new_pieces import (
    MIN_SAVED,
    NewPiece,
    choose_pieces,
    extend_vocabulary,
)
from tidybert.tokenization.wordpiece import WordPiece

LETTERS = "abcdeh"
VOCABULARY = Vocabulary(
    [
        *SPECIAL_TOKENS,
        *("[unused0]", "[unused1]", "[unused]", "x[unused2]"),
        *LETTERS,
        *(f"##{letter}" for letter in LETTERS),
        *("ab", "##cd"),
    ]
)


def num_pieces(words: dict[str, int], vocabulary: Vocabulary) -> int:
    split = WordPiece(vocabulary, vocabulary.tokens).split
    return sum(count * len(split(word)) for word, count in words.items())


def test_a_literal_example() -> None:
    # abead is spelled ab ##e ##a ##d, hcd h ##cd, acde a ##cd ##e and so on.
    words = {"abead": 10, "abe": 4, "hcd": 5, "acde": 8, "bcde": 7, "dcde": 6, "ab": 99}

    assert choose_pieces(words, VOCABULARY, 9) == [
        NewPiece("abead", ("ab", "##e", "##a", "##d"), 30),
        NewPiece("##cde", ("##cd", "##e"), 21),
        NewPiece("acde", ("a", "##cd", "##e"), 8),
        NewPiece("bcde", ("b", "##cd", "##e"), 7),
        NewPiece("dcde", ("d", "##cd", "##e"), 6),
        NewPiece("hcd", ("h", "##cd"), 5),
        NewPiece("abe", ("ab", "##e"), 4),
    ]
    assert len(choose_pieces(words, VOCABULARY, 2)) == 2


def test_a_beginning_that_no_word_has_in_its_own_pieces_is_seen_at_its_worth() -> None:
    vocabulary = Vocabulary([*SPECIAL_TOKENS, "a", "##b", "##c", "##cd", "##d", "##e"])
    # abc is spelled a ##b ##c alone, and hidden in a ##b ##cd.
    words = {"abc": 5, "abcd": 5, "abcde": 1}

    assert choose_pieces(words, vocabulary, 1) == [NewPiece("abc", ("a", "##b", "##c"), 16)]


def test_characters_without_a_piece_are_candidates() -> None:
    words = {"β": 9, "aβ": 5, "γδ": 4, "a" * 2: 1}

    assert choose_pieces(words, VOCABULARY, 9) == [
        NewPiece("β", ("[UNK]",), 9),
        NewPiece("##β", ("[UNK]",), 5),
        NewPiece("##δ", ("[UNK]",), 4),
        NewPiece("γ", ("[UNK]",), 4),
    ]


@settings(max_examples=60)
@given(
    st.dictionaries(
        st.text(alphabet=LETTERS, min_size=1, max_size=8), st.integers(1, 50), max_size=30
    ),
    st.integers(1, 12),
)
def test_the_savings_are_those_that_splitting_anew_finds(words: dict[str, int], add: int) -> None:
    pieces = choose_pieces(words, VOCABULARY, add)
    assert len({piece.token for piece in pieces}) == len(pieces) <= add

    left = num_pieces(words, VOCABULARY)
    for number, piece in enumerate(pieces, start=1):
        assert piece.saved >= MIN_SAVED
        assert "".join(part.removeprefix("##") for part in piece.replaces) == (
            piece.token.removeprefix("##")
        )
        assert all(part in VOCABULARY for part in piece.replaces)
        extended, _ = extend_vocabulary(VOCABULARY, pieces[:number])
        assert num_pieces(words, extended) == left - piece.saved
        left -= piece.saved
    shuffled = dict(random.Random(0).sample(list(words.items()), len(words)))
    assert choose_pieces(shuffled, VOCABULARY, add) == pieces


def test_unused_places_are_taken_first_and_all_other_tokens_keep_their_ids() -> None:
    pieces = [NewPiece(token, ("a", "##b"), 9) for token in ("ba", "##ba", "bab", "##bab")]

    for number, places in ((1, [5]), (2, [5, 6]), (4, [5, 6, 21 + 2, 22 + 2])):
        vocabulary, found = extend_vocabulary(VOCABULARY, pieces[:number])
        size = len(VOCABULARY)
        assert found == [place if place < 7 else size + at for at, place in enumerate(places, -2)]
        assert [vocabulary.tokens[place] for place in found] == [
            one.token for one in pieces[:number]
        ]
        same = [place for place in range(size) if place not in found]
        assert [vocabulary.tokens[n] for n in same] == [VOCABULARY.tokens[n] for n in same]
    assert extend_vocabulary(VOCABULARY, []) == (VOCABULARY, [])


def test_a_piece_that_is_there_already_is_refused() -> None:
    with pytest.raises(VocabularyError, match="repeats the token 'ab'"):
        extend_vocabulary(VOCABULARY, [NewPiece("ab", ("a", "##b"), 9)])


@given(st.lists(st.text(alphabet=f"{LETTERS} .AB", max_size=20)))
def test_text_decodes_alike_before_and_after(texts: list[str]) -> None:
    words = Counter(word for text in texts for word in text.lower().replace(".", " . ").split())
    extended, _ = extend_vocabulary(VOCABULARY, choose_pieces(words, VOCABULARY, 5))
    before, after = BertTokenizer(VOCABULARY), BertTokenizer(extended)

    for text in texts:
        decoded = before.decode(before.encode(text).input_ids, skip_special_tokens=False)
        again = after.decode(after.encode(text).input_ids, skip_special_tokens=False)
        assert "." in text or decoded == again
        assert len(after.tokenize(text)) <= len(before.tokenize(text)) or "." in text
