"""Counting: the words of the reference tokeniser, and bounded memory that says what it costs."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidybert.errors import TextError
from tidybert.tokenization import BasicTokenizer
from tidybert.tokenization.learning import vocabulary_training as word_counts
from tidybert.tokenization.learning.vocabulary_training import WordCounts

TEXTS = ["The cat, the CAT-dog.", "Café café\tthé", "", "中国 中国人", "x" * 101]


def test_a_literal_example() -> None:
    counts = WordCounts(BasicTokenizer())
    counts.add(TEXTS)
    counts.finish()

    english = {"the": 3, "cat": 2, ",": 1, "-": 1, "dog": 1, ".": 1}
    assert counts.words == english | {"cafe": 2, "中": 2, "国": 2, "人": 1}
    assert (counts.num_words, counts.num_too_long, counts.num_forgotten) == (17, 1, 0)
    first, inner = counts.characters()
    assert first == Counter("t" * 3 + "cc" + ",-d." + "cc" + "中中国国人" + "x")
    assert inner == Counter("he" * 3 + "at" * 2 + "og" + "afe" * 2 + "x" * 100)


@given(st.lists(st.text(alphabet="aB é.-,'(\t中σΣ\u0301\u00ad½")), st.booleans(), st.integers(1, 9))
def test_any_text_gives_the_words_that_splitting_it_gives(
    texts: list[str], do_lower_case: bool, max_raw_chunks: int
) -> None:
    basic = BasicTokenizer(do_lower_case)
    counts = WordCounts(basic, max_raw_chunks=max_raw_chunks)
    for text in texts:
        counts.add([text])
    counts.finish()

    expected = Counter(word for text in texts for word in basic.split(text))
    assert counts.words == expected
    first, inner = counts.characters()
    assert first == Counter(word[0] for word in expected.elements())
    assert inner == Counter("".join(word[1:] for word in expected.elements()))


@given(st.lists(st.text(alphabet="abcd", min_size=1, max_size=2), max_size=200))
def test_forgetting_is_bounded_and_told(words: list[str]) -> None:
    counts = WordCounts(BasicTokenizer(), max_words=6, max_raw_chunks=0)
    for word in words:
        counts.add([word])
    counts.finish()

    true = Counter(words)
    assert len(counts.words) <= 6
    assert counts.num_words == len(words)
    assert counts.num_forgotten == sum(true.values()) - sum(counts.words.values())
    for word, count in true.items():
        assert count - counts.max_missed <= counts.words.get(word, 0) <= count
    # Every character is known all the same.
    first, inner = counts.characters()
    assert first == Counter(word[0] for word in words)
    assert inner == Counter("".join(word[1:] for word in words))


def test_raw_text_is_held_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_counts, "MAX_RAW_CHARACTERS", 7)
    counts = WordCounts(BasicTokenizer())
    counts.add(["one two"])
    assert counts.words == {}
    counts.add(["x"])
    assert counts.words == {"one": 1, "two": 1, "x": 1}


def test_a_lone_surrogate_is_no_text() -> None:
    counts = WordCounts(BasicTokenizer())
    counts.add(["ab\ud83d"])
    with pytest.raises(TextError, match="lone surrogate U\\+D83D"):
        counts.finish()
