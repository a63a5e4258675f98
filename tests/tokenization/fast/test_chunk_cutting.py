"""Cutting many texts at once: the words of the chunks are the words of the texts."""

import re
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidybert.tokenization import BasicTokenizer
from tidybert.tokenization import unicode_tables as tables
from tidybert.tokenization.fast.block_encoder import ChunkCutter, Chunks

SETTINGS = {
    "uncased": BasicTokenizer(),
    "cased": BasicTokenizer(do_lower_case=False),
    "lower-cased with accents": BasicTokenizer(strip_accents=False),
    "ideographs unspaced": BasicTokenizer(tokenize_chinese_chars=False),
}
# The ends of every table, beside letters of one to four bytes.
SPECIAL_CHARACTERS = "\0aZ1 \n\x7féİ가中、\u4dff\u3400\U00020000𝔸!" + "".join(
    chr(point)
    for table in (tables.REMOVED, tables.WHITE_SPACE, tables.PUNCTUATION, tables.CJK)
    for first, last in tables.ranges(table)
    for point in {max(first - 1, 0), first, last}
    if not 0xD800 <= point < 0xE000
)
# Assigned characters that come by the thousand and are all alike.
ALIKE = re.compile("[\u3401-\u4db4\u4e01-\u9fa4\uac01-\ud7a2\ue001-\uf8fe\U00017000-\U00018cff]")
texts = st.text(
    st.one_of(st.sampled_from(SPECIAL_CHARACTERS), st.characters(exclude_categories=["Cs"])),
    max_size=20,
)


def cutter(basic: BasicTokenizer) -> ChunkCutter:
    return ChunkCutter(basic.do_lower_case, basic.tokenize_chinese_chars)


def strings(chunks: Chunks) -> list[list[str]]:
    """The chunks of each text."""
    every = [
        chunks.data[start : start + length].decode()
        for start, length in zip(chunks.starts.tolist(), chunks.lengths.tolist(), strict=True)
    ]
    bounds = [0, *chunks.text_ends.tolist()]
    return [every[start:end] for start, end in pairwise(bounds)]


@pytest.mark.parametrize(
    ("setting", "text", "expected"),
    [
        (
            "uncased",
            "The (good)  HELLO, world!",
            ["the", "(", "good", ")", "hello", ",", "world", "!"],
        ),
        ("cased", "The\tgood\r\nHELLO", ["The", "good", "HELLO"]),
        ("uncased", "a\x01b\x7f c\x0b", ["ab", "c"]),
        ("uncased", "UNwantÉd\u3000x", ["unwantÉd\u3000x"]),
        ("uncased", "x中国。“é” y–", [*"x中国。“é”y–"]),
        ("ideographs unspaced", "中国。x", ["中国", "。", "x"]),
        ("uncased", "", []),
        ("uncased", " \n", []),
    ],
)
def test_examples(setting: str, text: str, expected: list[str]) -> None:
    assert strings(cutter(SETTINGS[setting]).cut([text])) == [expected]


def test_texts_end_where_they_end() -> None:
    cut = cutter(SETTINGS["uncased"]).cut
    assert strings(cut(["", "a b", "", "c", "", ""])) == [[], ["a", "b"], [], ["c"], [], []]
    assert strings(cut(["ab\0", "\0", "c\0d"])) == [["ab"], [], ["cd"]]
    assert strings(cut([])) == []


@pytest.mark.parametrize("setting", SETTINGS)
@given(batch=st.lists(texts, max_size=4))
def test_the_words_of_the_chunks_are_those_of_the_texts(setting: str, batch: list[str]) -> None:
    basic = SETTINGS[setting]
    found = strings(cutter(basic).cut(batch))
    words = [[word for chunk in chunks for word in basic.split(chunk)] for chunks in found]
    assert words == [basic.split(text) for text in batch]


@pytest.mark.parametrize("setting", SETTINGS)
@given(text=texts)
def test_an_ascii_chunk_is_a_normalised_word(setting: str, text: str) -> None:
    basic = SETTINGS[setting]
    for chunk in strings(cutter(basic).cut([text]))[0]:
        assert chunk
        if chunk.isascii():
            assert basic.split(chunk) == [chunk]


@pytest.mark.parametrize("setting", SETTINGS)
def test_every_character_between_others(setting: str) -> None:
    basic = SETTINGS[setting]
    assigned = [
        chr(point)
        for point in range(0x20000)
        if not ALIKE.match(chr(point)) and unicodedata.category(chr(point)) not in ("Cs", "Cn")
    ]
    batch = ["".join(f"a{c}{c}b 中{c}. " for c in assigned[i::199]) for i in range(199)]
    for text, chunks in zip(batch, strings(cutter(basic).cut(batch)), strict=True):
        assert [word for chunk in chunks for word in basic.split(chunk)] == basic.split(text)


@pytest.mark.parametrize(
    ("text", "error"),
    [("\ud800", UnicodeEncodeError), (None, TypeError), (b"a", TypeError), (1.5, TypeError)],
)
def test_what_is_no_text_is_refused(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        cutter(SETTINGS["uncased"]).cut(["a", text])
