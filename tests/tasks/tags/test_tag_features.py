"""Windows over tagged words: each word answered for once, at its first piece."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidybert.data.long_texts import most_context, windows_of
from tidybert.errors import UsageError
from tidybert.tasks.tags.tag_files import TaggedExample, untagged
from tidybert.tasks.tags.tagging import tagged_features
from tidybert.tokenization import BertTokenizer

REST = [f"##{letter}" for letter in "abcd"]
TOKENIZER = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcd", *REST, ".", "-"])
UNK, CLS, SEP, A = 1, 2, 3, 5


def examples_of(*sentences: str) -> list[TaggedExample]:
    return [TaggedExample(tuple(each.split()), None, 1) for each in sentences]


def test_a_word_is_read_at_its_first_piece() -> None:
    first, second = tagged_features(examples_of("abc d a-b", "a"), TOKENIZER, 16, None)

    assert first.input_ids.tolist() == [CLS, 5, 10, 11, 8, 5, 14, 6, SEP]
    assert first.input_ids.dtype == np.int32
    assert first.token_type_ids.tolist() == [0] * 9
    assert first.place.words.tolist() == [0, 1, 2]
    assert first.place.rows.tolist() == [1, 4, 5]
    assert (first.num_tokens, first.truncated, first.example) == (9, False, 0)
    assert (second.input_ids.tolist(), second.example) == ([CLS, A, SEP], 1)


def test_a_word_without_pieces_is_read_at_the_piece_before_it() -> None:
    words = ("\u200b", "a", "\u200b", "", "b")
    text = "a. \u0301 b"

    one, nothing, raw, empty = tagged_features(
        [TaggedExample(words, None, 1), TaggedExample(("",), None, 1), untagged(text, 1),
         untagged("\u0301", 1)], TOKENIZER, 16, None,
    )  # fmt: skip

    assert one.input_ids.tolist() == [CLS, A, 6, SEP]
    assert one.place.words.tolist() == [0, 1, 2, 3, 4]
    assert one.place.rows.tolist() == [1, 1, 1, 1, 2]
    assert one.place.repeated.tolist() == [False, True, True, True, False]
    assert one.place.num_silent == 3
    assert (nothing.input_ids.tolist(), nothing.place.rows.tolist()) == ([CLS, SEP], [1])
    assert raw.input_ids.tolist() == TOKENIZER.encode(text).input_ids
    assert (raw.place.rows.tolist(), raw.place.num_silent) == ([1, 2, 2, 3], 1)
    assert (empty.input_ids.tolist(), empty.place.rows.tolist()) == ([CLS, SEP], [1])


def test_the_way_of_older_versions_has_a_piece_for_each_word() -> None:
    examples = [TaggedExample(("a", "\u200b", "", "b"), None, 1)]

    (one,) = tagged_features(examples, TOKENIZER, 16, None, running_text=False)

    assert one.input_ids.tolist() == [CLS, A, UNK, UNK, 6, SEP]
    assert one.place.rows.tolist() == [1, 2, 3, 4]
    assert one.place.num_silent == 2


def test_an_example_without_words_is_there_too() -> None:
    nothing, _ = tagged_features(examples_of("", "a"), TOKENIZER, 16, None)

    assert nothing.input_ids.tolist() == [CLS, SEP]
    assert (len(nothing.place.words), nothing.num_tokens) == (0, 2)
    assert tagged_features([], TOKENIZER, 16, None) == []


def test_a_long_sentence_is_read_in_windows() -> None:
    features = tagged_features(examples_of("a b c d a b c"), TOKENIZER, 6, 2)

    assert [one.input_ids.tolist() for one in features] == [
        [CLS, 5, 6, 7, 8, SEP],
        [CLS, 7, 8, 5, 6, SEP],
        [CLS, 5, 6, 7, SEP],
    ]
    assert [one.place.words.tolist() for one in features] == [[0, 1, 2], [3, 4], [5, 6]]
    assert [one.place.rows.tolist() for one in features] == [[1, 2, 3], [2, 3], [2, 3]]
    assert [(one.example, one.num_tokens, one.truncated) for one in features] == [(0, 9, False)] * 3


def test_a_window_without_a_word_of_its_own_is_left_out() -> None:
    features = tagged_features(examples_of("a " + "b" * 20 + " c"), TOKENIZER, 6, 4)

    assert [one.place.words.tolist() for one in features] == [[0, 1], [2]]
    assert {one.num_tokens for one in features} == {24}


def test_a_window_needs_room() -> None:
    with pytest.raises(UsageError, match="max_seq_length leaves no room"):
        tagged_features(examples_of("a"), TOKENIZER, 2, None)
    with pytest.raises(UsageError, match=r"doc_stride=5: .* room for 4 tokens"):
        tagged_features(examples_of("a"), TOKENIZER, 6, 5)


WORDS = st.lists(st.text("abcd.-\u200b\u0301", max_size=6), max_size=25).map(tuple)


@given(st.lists(WORDS, max_size=4), st.integers(3, 12), st.data())
def test_every_word_is_read_once_where_it_has_most_context(
    sentences: list[tuple[str, ...]], max_seq_length: int, data: st.DataObject
) -> None:
    stride = data.draw(st.none() | st.integers(1, max_seq_length - 2))
    examples = [TaggedExample(words, None, 1) for words in sentences]

    features = tagged_features(examples, TOKENIZER, max_seq_length, stride)

    assert {one.example for one in features} == set(range(len(examples)))
    for number, words in enumerate(sentences):
        mine = [one for one in features if one.example == number]
        read = np.concatenate([one.place.words for one in mine])
        assert sorted(read.tolist()) == list(range(len(words)))
        pieces = [TOKENIZER.encode(word, add_special_tokens=False).input_ids for word in words]
        ids = [piece for each in pieces for piece in each]
        begins = np.cumsum([0, *map(len, pieces)])
        starts = [max(0, begin - (not each)) for begin, each in zip(begins, pieces, strict=False)]
        if not ids:
            assert [one.place.rows.tolist() for one in mine] == [[1] * len(words)]
            continue
        windows = windows_of(len(ids), max_seq_length - 2, stride)
        owners = most_context(windows)
        for one in mine:
            assert len(one.input_ids) <= max_seq_length
            assert one.num_tokens == len(ids) + 2
            for word, row in zip(one.place.words, one.place.rows, strict=True):
                start, end = windows[owners[starts[word]]]
                assert one.input_ids[1:-1].tolist() == ids[start:end]
                assert start + row - 1 == min(starts[word], len(ids) - 1)


@given(st.lists(st.lists(st.text("abcd.-é", min_size=1, max_size=5), min_size=1), min_size=1))
def test_pieces_and_words_are_those_of_transformers(
    fast_tokenizer: object, sentences: list[list[str]]
) -> None:
    features = tagged_features(
        [TaggedExample(tuple(words), None, 1) for words in sentences], TOKENIZER, 512, None
    )
    theirs = fast_tokenizer(sentences, is_split_into_words=True)  # type: ignore[operator]

    for number, one in enumerate(features):
        assert one.input_ids.tolist() == theirs["input_ids"][number]
        words = theirs.word_ids(number)
        firsts = [
            row for row, word in enumerate(words) if word is not None and word != words[row - 1]
        ]
        assert one.place.rows.tolist() == firsts


@pytest.fixture(scope="module")
def fast_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> object:
    import transformers

    directory: Path = tmp_path_factory.mktemp("tokenizer")
    TOKENIZER.save(directory)
    return transformers.BertTokenizerFast.from_pretrained(directory)
