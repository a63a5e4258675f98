"""The words of a text: codes whole, scripts without spaces, and one form of each word."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidybert.search.words import words_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't panic, Straße!", ["don", "t", "panic", "strasse"]),
        ("the AB-1234", ["the", "ab", "1234", "ab-1234"]),
        ("10,000.50€ at 192.168.0.1.", ["10", "000", "50", "10,000.50", "at", "192", "168", "0",
                                        "1", "192.168.0.1"]),
        ("C++ and C#, item #5", ["c", "c++", "and", "c", "c#", "item", "5"]),
        ("foo_bar well-known and/or", ["foo", "bar", "foo_bar", "well", "known", "and", "or"]),
        ("_ __ - ' \U0001f642", []),
        ("第3章 東京", ["第", "3", "章", "東", "京", "東京"]),
        ("コーヒー", ["コ", "ー", "ヒ", "ー", "コー", "ーヒ", "ヒー"]),
        ("ที่นี่", ["ที่", "นี่", "ที่นี่"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("한국어 문장", ["한국어", "문장"]),
        ("half \ud83d", ["half"]),
        ("", []),
    ],
)  # fmt: skip
def test_the_words_of_a_text(text: str, words: list[str]) -> None:
    assert words_of(text) == words


@given(st.text())
def test_forms_and_capitals_do_not_count(text: str) -> None:
    assert words_of(unicodedata.normalize("NFD", text)) == words_of(text)
    assert words_of(text.casefold()) == words_of(text)


@given(st.text(alphabet="aB1é_-.,/+# 東ท"), st.text(alphabet="aB1é_-.,/+# 東ท"))
def test_texts_apart_have_the_words_of_both(first: str, second: str) -> None:
    assert words_of(f"{first} \n{second}") == words_of(first) + words_of(second)
