"""The tables against what tokenizers does with each code point of Unicode."""

import unicodedata
from collections.abc import Callable

import pytest
from tokenizers.normalizers import NFD, BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from tidybert.tokenization import unicode_tables as tables

CHARACTERS = [chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000]


def only(**switches: bool) -> Callable[[str], str]:
    """The reference's normaliser with one of its steps alone."""
    off = dict.fromkeys(("clean_text", "handle_chinese_chars", "strip_accents", "lowercase"), False)
    normalize: Callable[[str], str] = BertNormalizer(**(off | switches)).normalize_str
    return normalize


CLEAN = only(clean_text=True)
SPACED = only(handle_chinese_chars=True)
STRIP = only(strip_accents=True)
LOWER = only(lowercase=True)
DECOMPOSE = NFD().normalize_str
SPLIT = BertPreTokenizer().pre_tokenize_str
# Of the highest combining class but its own, so that every other mark sorts before it.
IOTA = "\u0345"

BELONGS = {
    "REMOVED": lambda c: CLEAN(c) == "",
    "WHITE_SPACE": lambda c: CLEAN(c) == " ",
    "CJK": lambda c: SPACED(c) == f" {c} ",
    "PUNCTUATION": lambda c: len(SPLIT(f"a{c}b")) == 3,
    "NONSPACING_MARKS": lambda c: STRIP(c) == "",
    "CANONICAL": lambda c: c == IOTA or DECOMPOSE(c) != c or DECOMPOSE(IOTA + c) != IOTA + c,
}


@pytest.mark.parametrize("name", BELONGS)
def test_every_code_point_is_classified_as_by_the_reference(name: str) -> None:
    table = {
        chr(point)
        for first, last in tables.ranges(getattr(tables, name))
        for point in range(first, last + 1)
    }
    belongs = BELONGS[name]
    differing = [hex(ord(c)) for c in CHARACTERS if belongs(c) != (c in table)]
    assert differing == []


def test_capitals_that_python_may_not_know_yet_are_lowered_as_by_the_reference() -> None:
    if LOWER("\ua7ce") == "\ua7ce":
        pytest.skip("this version of tokenizers has an older Unicode")
    for capital, small in tables.NEW_CAPITALS.items():
        assert LOWER(chr(capital)) == chr(small)


def test_all_other_capitals_of_this_python_are_lowered_as_by_the_reference() -> None:
    differing = [
        hex(ord(c))
        for c in CHARACTERS
        if ord(c) not in tables.NEW_CAPITALS
        and unicodedata.category(c) != "Cn"
        and c.lower() != LOWER(c)
    ]
    assert differing == []


def test_a_table_becomes_a_character_class() -> None:
    assert list(tables.ranges(" 9-A D\n20 ")) == [(9, 10), (13, 13), (32, 32)]
    assert tables.character_class("9-A 1F600") == r"\U00000009-\U0000000a\U0001f600-\U0001f600"
