"""Windows of questions: beside transformers' tokenizer, and answers as characters of the text."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidybert.errors import DataError, TextError, UsageError
from tidybert.tasks.questions.question_features import (
    ContextTokens,
    add_answers,
    answer_tokens,
    question_features,
)
from tidybert.tasks.questions.question_files import QuestionExample
from tidybert.tokenization import BertTokenizer

LETTERS = "abcdefghij"
# 한 becomes these three pieces of one character.
HAN = ("ᄒ", "##ᅡ", "##ᆫ")
VOCABULARY = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ",", "中", "cab", "##ab", *HAN),
    *LETTERS,
    *(f"##{letter}" for letter in LETTERS),
]
TOKENIZER = BertTokenizer(VOCABULARY)
words = st.text(st.sampled_from("abcjÀÉ中한, \u0301\u200bx"), max_size=8)
texts = st.lists(words, max_size=12).map(" ".join)
# Of a decomposed accent their offsets leave the mark out, ours take it in.
composed_texts = texts.map(lambda text: text.replace("\u0301", ""))


def example(question: str, context: str, *answers: tuple[str, int], **more: Any) -> QuestionExample:
    return QuestionExample("q", question, context, answers, row=7, **more)


def features_of(*examples: QuestionExample, **lengths: Any) -> list[Any]:
    given = {"max_seq_length": 12, "max_query_length": 4, "doc_stride": 3, **lengths}
    return question_features(examples, TOKENIZER, **given)


def tokens(feature: Any) -> str:
    return " ".join(TOKENIZER.convert_ids_to_tokens(feature.input_ids.tolist()))


def offsets(spans: ContextTokens) -> list[tuple[int, int]]:
    return list(zip(spans.starts.tolist(), spans.ends.tolist(), strict=True))


def test_literal_example() -> None:
    first, second, other = features_of(
        example("a b", "Cab ÀB, 中c j j j"), example("a b c d e", "j")
    )

    assert tokens(first) == "[CLS] a b [SEP] cab a ##b , 中 c j [SEP]"
    assert tokens(second) == "[CLS] a b [SEP] , 中 c j j j [SEP]"
    assert first.token_type_ids.tolist() == [0] * 4 + [1] * 8
    assert (first.input_ids.dtype, first.token_type_ids.dtype) == (np.int32, np.uint8)
    assert (first.example, second.example, other.example) == (0, 0, 1)
    # All of the text is read, so nothing of it is truncated; the longer question's end is.
    assert (first.num_tokens, first.truncated) == (14, False)
    assert tokens(other) == "[CLS] a b c d [SEP] j [SEP]"
    assert (other.num_tokens, other.truncated) == (9, True)
    assert first.place.owned.tolist() == [True] * 5 + [False] * 2
    assert second.place.owned.tolist() == [False] * 2 + [True] * 4


def test_a_text_without_a_token_is_a_window_all_the_same() -> None:
    (one,) = features_of(example("a", " "))

    assert tokens(one) == "[CLS] a [SEP] [SEP]"
    assert one.token_type_ids.tolist() == [0, 0, 0, 1]
    assert len(one.place.owned) == 0


@given(texts, texts, st.integers(11, 20), st.integers(1, 4))
def test_every_token_is_read_and_slices_the_text(
    question: str, context: str, max_seq_length: int, doc_stride: int
) -> None:
    lengths = {"max_seq_length": max_seq_length, "doc_stride": doc_stride}
    features = features_of(example(question, context), **lengths)

    whole = TOKENIZER.encode(context, add_special_tokens=False)
    asked = TOKENIZER.encode(question, add_special_tokens=False).input_ids[:4]
    owners = np.zeros(len(whole), dtype=np.int64)
    for one in features:
        window = one.place
        shown = whole.input_ids[window.begin : window.end]
        assert one.input_ids.tolist() == [2, *asked, 3, *shown, 3]
        assert len(one.input_ids) <= max_seq_length
        assert window.first_row == len(asked) + 2
        owners[window.begin : window.end] += window.owned
        assert offsets(window.tokens) == whole.offset_mapping
    assert (owners == 1).all()
    assert all(b.place.begin - a.place.begin == doc_stride for a, b in pairwise(features))


def test_no_answer_ends_between_a_character_and_its_accent() -> None:
    spans = ContextTokens.of(TOKENIZER.encode("a 한\u0301 a", add_special_tokens=False))

    assert spans.starts.tolist() == [0, 2, 2, 2, 5]
    assert spans.ends.tolist() == [1, 4, 4, 4, 6]
    assert spans.pairs(1, 3).tolist() == [[1, 1], [1, 2], [1, 3], [2, 2], [2, 3], [3, 3]]
    assert spans.pairs(0, 4).tolist() == [[0, 4]]


@given(texts, st.data())
def test_an_answer_that_tokens_cover_comes_back_as_it_was(
    context: str, data: st.DataObject
) -> None:
    spans = ContextTokens.of(TOKENIZER.encode(context, add_special_tokens=False))
    size = len(spans.starts)
    if not size:
        return
    first = data.draw(st.integers(0, size - 1))
    last = data.draw(st.integers(first, size - 1))
    start, end = int(spans.starts[first]), int(spans.ends[last])

    found = answer_tokens(example("a", context, (context[start:end], start)), spans)

    assert found is not None
    assert found[0] <= first <= last <= found[1]
    assert (spans.starts[found[0]], spans.ends[found[1]]) == (start, end)
    assert [first, last] in spans.pairs(*found).tolist()


def test_an_answer_within_tokens_becomes_those_that_cover_it() -> None:
    context = "j cab cabab, 한 j"
    spans = ContextTokens.of(TOKENIZER.encode(context, add_special_tokens=False))
    assert TOKENIZER.tokenize(context) == ["j", "cab", "cab", "##ab", ",", *HAN, "j"]

    assert spans.covering(3, 4) == (1, 1)
    assert spans.covering(3, 7) == (1, 2)
    assert spans.covering(13, 14) == (5, 7)
    assert spans.covering(1, 2) is None


def test_labels_are_rows_of_the_windows_that_show_the_whole_answer() -> None:
    context = "a b c d e f g h i j"
    one = example("j", context, ("f g", 10))
    features = features_of(one, max_seq_length=8, max_query_length=1)
    add_answers(features, [one])

    # Rooms of 4, steps of 3: a-d, d-g, g-j; the first text token is row 3.
    assert [each.label for each in features] == [(0, 0), (5, 6), (0, 0)]
    for each in features[1:2]:
        first, last = each.label
        assert TOKENIZER.convert_ids_to_tokens(each.input_ids[first : last + 1]) == ["f", "g"]


def test_every_token_with_the_characters_of_the_answer_is_a_label() -> None:
    one = example("j", "a 한 j", ("한 j", 2))
    features = features_of(one, max_seq_length=8, max_query_length=1)
    add_answers(features, [one])

    # Rooms of 4, steps of 3; the three tokens of the answer's first character are rows 4 to 6.
    assert [each.label for each in features] == [(0, 0), (3, 4)]
    (whole,) = features_of(one)
    add_answers([whole], [one])
    assert whole.label == (4, 7, 5, 7, 6, 7)


def test_a_question_without_an_answer_points_at_the_first_row() -> None:
    one = example("j", "a b", is_impossible=True)
    features = features_of(one)
    add_answers(features, [one])

    assert [each.label for each in features] == [(0, 0)]


def test_answers_must_be_known_to_be_learned() -> None:
    one = example("j", "a b")

    with pytest.raises(DataError, match="id q: the question has no right answer; give one, or say"):
        add_answers(features_of(one), [one])
    unnamed = replace(one, id="7")
    with pytest.raises(DataError, match="line 7: the question has no right answer"):
        add_answers(features_of(unnamed), [unnamed])


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ({"max_seq_length": 7}, "max_seq_length=7 leaves no room .* give at least 8, or a lower"),
        ({"doc_stride": 6}, "doc_stride=6: .* room for 5 tokens; give 1 to 5"),
        ({"doc_stride": 0}, "doc_stride=0"),
    ],
)
def test_lengths_that_do_not_fit_are_refused(lengths: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        features_of(example("a", "b"), **lengths)


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(TextError):
        features_of(example("a", "\ud800"))


@given(composed_texts, composed_texts.filter(str.strip), st.integers(10, 20), st.data())
def test_windows_are_those_of_transformers(
    fast_tokenizer: Any, question: str, context: str, max_seq_length: int, data: st.DataObject
) -> None:
    asked = len(TOKENIZER.encode_batch([question], add_special_tokens=False)[0])
    if asked > 4:
        return
    room = max_seq_length - asked - 3
    doc_stride = data.draw(st.integers(1, max_seq_length - 7))
    lengths = {"max_seq_length": max_seq_length, "doc_stride": doc_stride}

    features = features_of(example(question, context), **lengths)

    theirs = fast_tokenizer(
        question,
        context,
        truncation="only_second",
        max_length=max_seq_length,
        # Theirs is the overlap of two windows, ours the step from one to the next.
        stride=room - doc_stride,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    assert [one.input_ids.tolist() for one in features] == theirs["input_ids"]
    assert [one.token_type_ids.tolist() for one in features] == theirs["token_type_ids"]
    for one, their_offsets in zip(features, theirs["offset_mapping"], strict=True):
        shown = offsets(one.place.tokens)[one.place.begin : one.place.end]
        assert shown == their_offsets[one.place.first_row : -1]


@pytest.fixture(scope="module")
def fast_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    import transformers

    directory: Path = tmp_path_factory.mktemp("tokenizer")
    TOKENIZER.save(directory)
    return transformers.AutoTokenizer.from_pretrained(directory)
