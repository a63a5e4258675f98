"""Cleaning and splitting: Google's own examples, and all of Unicode against the reference."""

import random
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from tidybert.errors import TextError
from tidybert.tokenization import BasicTokenizer
from tidybert.tokenization import unicode_tables as tables

SETTINGS = {
    "uncased": BasicTokenizer(),
    "cased": BasicTokenizer(do_lower_case=False),
    "lower-cased with accents": BasicTokenizer(strip_accents=False),
    "cased without accents": BasicTokenizer(do_lower_case=False, strip_accents=True),
    "ideographs unspaced": BasicTokenizer(tokenize_chinese_chars=False),
}
# Assigned characters, but only a sample of those that come by the ten thousand and are all alike.
ALIKE = re.compile("[\u3400-\u9fff\uac00-\ud7a3\ue000-\uf8ff\U00020000-\U0010ffff]")
LETTERS_AND_SIGNS = [
    chr(point)
    for point in range(0x110000)
    if not 0xD800 <= point < 0xE000
    and (
        point % 499 == 0
        or not (ALIKE.match(chr(point)) or unicodedata.category(chr(point)) == "Cn")
    )
]
# What is special in some table, beside a few letters, comes up far more often than by chance.
SPECIAL_CHARACTERS = "aZ1Σσςİı 中가\u0345\u302e\U0001d165" + "".join(
    chr(point)
    for table in (tables.REMOVED, tables.PUNCTUATION, tables.NONSPACING_MARKS, tables.CANONICAL)
    for first, last in tables.ranges(table)
    for point in {first, last}
)
texts = st.text(
    st.one_of(st.sampled_from(SPECIAL_CHARACTERS), st.characters(exclude_categories=["Cs", "Cn"])),
    max_size=30,
)


def reference_words(basic: BasicTokenizer, text: str) -> list[str]:
    normalizer = BertNormalizer(
        clean_text=True,
        handle_chinese_chars=basic.tokenize_chinese_chars,
        strip_accents=basic.strip_accents,
        lowercase=basic.do_lower_case,
    )
    split = BertPreTokenizer().pre_tokenize_str(normalizer.normalize_str(text))
    return [word for word, _ in split]


# These are the cases of tokenization_test.py in Google's BERT.
@pytest.mark.parametrize(
    ("basic", "text", "words"),
    [
        ("uncased", "ah\u535a\u63a8zz", ["ah", "\u535a", "\u63a8", "zz"]),
        ("uncased", " \tHeLLo!how  \n Are yoU?  ", ["hello", "!", "how", "are", "you", "?"]),
        ("uncased", "H\u00e9llo", ["hello"]),
        ("cased", " \tHeLLo!how  \n Are yoU?  ", ["HeLLo", "!", "how", "Are", "yoU", "?"]),
    ],
)
def test_the_original_examples(basic: str, text: str, words: list[str]) -> None:
    assert SETTINGS[basic].split(text) == words


@pytest.mark.parametrize(
    ("basic", "text", "words"),
    [
        ("uncased", "ΟΔΟΣ", ["οδοσ"]),
        ("uncased", "İstanbul", ["istanbul"]),
        ("lower-cased with accents", "İÉ", ["i̇é"]),
        ("cased without accents", "Éa", ["Ea"]),
        ("uncased", "a\x00b\ufffd\u200d\x85c", ["abc"]),
        ("uncased", "a\u00a0b\u3000c\u2028d", ["a", "b", "c", "d"]),
        ("uncased", "$1+2", ["$", "1", "+", "2"]),
        ("uncased", "a\u037eb", ["a", ";", "b"]),
        ("ideographs unspaced", "中国。", ["中国", "。"]),
        ("uncased", "", []),
        ("uncased", "\u0301\u200b", []),
    ],
)
def test_words(basic: str, text: str, words: list[str]) -> None:
    assert SETTINGS[basic].split(text) == words == reference_words(SETTINGS[basic], text)


@pytest.mark.parametrize("setting", ["uncased", "cased", "lower-cased with accents"])
def test_every_character_between_others(setting: str) -> None:
    basic = SETTINGS[setting]
    for start in range(0, len(LETTERS_AND_SIGNS), 500):
        block = LETTERS_AND_SIGNS[start : start + 500]
        text = "".join(f"a{c}\u0345{c}b 中{c}. " for c in block)
        expected = reference_words(basic, text)
        assert basic.split(text) == expected
        assert [word.text for word in basic.split_with_offsets(text)] == expected


@pytest.mark.parametrize("setting", SETTINGS)
@given(text=texts)
def test_any_text_splits_as_by_the_reference(setting: str, text: str) -> None:
    basic = SETTINGS[setting]
    assert basic.split(text) == reference_words(basic, text)


@pytest.mark.parametrize("setting", SETTINGS)
@given(text=texts)
def test_the_words_of_a_text_are_the_words_of_its_pieces(setting: str, text: str) -> None:
    basic = SETTINGS[setting]
    pieces = basic.pieces(text)
    assert [word for piece in pieces for word in basic.split(piece)] == basic.split(text)
    assert [word.text for word in basic.split_with_offsets(text)] == basic.split(text)


def test_runs_of_marks_are_ordered_as_by_the_reference() -> None:
    generator = random.Random(0)
    for setting in ("uncased", "cased without accents"):
        basic = SETTINGS[setting]
        for _ in range(5000):
            text = "a" + "".join(generator.choices(SPECIAL_CHARACTERS, k=8))
            expected = reference_words(basic, text)
            assert basic.split(text) == expected
            assert [word.text for word in basic.split_with_offsets(text)] == expected


@pytest.mark.parametrize(
    ("basic", "text", "sources"),
    [
        ("uncased", "Cafe\u0301 é", ["Cafe\u0301", "é"]),
        ("uncased", "a\u00adb\u00ad 中\u200b国", ["a\u00adb", "中", "国"]),
        ("lower-cased with accents", "xİy!", ["xİy", "!"]),
        ("uncased", "각\u0301a", ["각\u0301a"]),
        ("uncased", " \u0301x", ["x"]),
    ],
)
def test_offsets(basic: str, text: str, sources: list[str]) -> None:
    found = [word.span(0, len(word.text)) for word in SETTINGS[basic].split_with_offsets(text)]
    assert [text[start:end] for start, end in found] == sources


def test_each_part_of_a_word_has_its_own_span() -> None:
    (word,) = BasicTokenizer().split_with_offsets("e\u0301각")
    assert [word.span(i, i + 1) for i in range(len(word.text))] == [(0, 2), (2, 3), (2, 3), (2, 3)]


def test_a_lone_surrogate_is_refused_with_its_position() -> None:
    with pytest.raises(TextError, match=r"U\+D83D at position 2"):
        BasicTokenizer().normalize("ab\ud83d")
