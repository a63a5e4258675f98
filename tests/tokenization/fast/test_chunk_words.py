"""The words of many chunks at once are the words of each."""

import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidybert.tokenization import BasicTokenizer
from tidybert.tokenization.fast.block_encoder import ChunkCutter, normalized_words

SETTINGS = {
    "uncased": BasicTokenizer(),
    "cased": BasicTokenizer(do_lower_case=False),
    "ideographs unspaced": BasicTokenizer(tokenize_chinese_chars=False),
}
# Removed, white space, marks of two bytes, one that decomposes into ";", and ordering of accents.
SPECIAL_CHARACTERS = "aB1 !,.中é§\u00a0\u037e\u200b\u0301\u0345\u302eςΣİ≠\U0001d165"


def words_of(basic: BasicTokenizer, text: str) -> tuple[list[str], list[list[str]]]:
    """The chunks of a text, and the words of each as they are found together."""
    data, starts, lengths, _ = ChunkCutter(basic.do_lower_case, basic.tokenize_chinese_chars).cut(
        [text]
    )
    if not len(starts):
        return [], []
    places = zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
    chunks = [data[start:end].decode() for start, end in places]
    words = normalized_words(basic, data, starts, lengths)
    assert len(words.text) > words.ends.max(initial=0)
    found: list[list[str]] = [[] for _ in chunks]
    for start, end, chunk in zip(words.starts, words.ends, words.chunks, strict=True):
        found[chunk].append(words.text[start:end].tobytes().decode())
    return chunks, found


def test_examples() -> None:
    chunks, words = words_of(SETTINGS["uncased"], "Hello É\u00a0ß§x \u200b Ünï, ok")
    assert chunks == ["hello", "É\u00a0ß§x", "\u200b", "Ünï", ",", "ok"]
    assert words == [["hello"], ["e", "ß", "§", "x"], [], ["uni"], [","], ["ok"]]


@pytest.mark.parametrize("setting", SETTINGS)
@given(
    text=st.text(
        st.one_of(
            st.sampled_from(SPECIAL_CHARACTERS), st.characters(exclude_categories=["Cs", "Cn"])
        ),
        max_size=30,
    )
)
def test_any_text(setting: str, text: str) -> None:
    basic = SETTINGS[setting]
    chunks, words = words_of(basic, text)
    assert words == [basic.split(chunk) for chunk in chunks]


@pytest.mark.parametrize("setting", SETTINGS)
def test_no_character_touches_what_stands_between_the_chunks(setting: str) -> None:
    basic = SETTINGS[setting]
    every = [
        chr(point)
        for point in range(0x80, 0x110000)
        if not 0xD800 <= point < 0xE000 and unicodedata.category(chr(point)) not in ("Cn", "Co")
    ]
    joined = basic.normalize("!".join(f"{one}a{one}" for one in every))
    parts = joined.split("!")
    assert len(parts) == len(every)
    sample = np.random.default_rng(0).choice(len(every), 5000, replace=False)
    for index in sample:
        assert parts[index] == basic.normalize(f"{every[index]}a{every[index]}")
