"""Features: special tokens, types and truncation, against the original's loop and the tokenizer."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.data.number_tokenizer import CLS, SEP, NumberTokenizer
from tokenizers import Tokenizer, models, pre_tokenizers

from tidybert.data.features import example_features, text_features
from tidybert.errors import ConfigError, DataError, TextError, UsageError
from tidybert.files.text_examples import TextExample
from tidybert.tokenization import BertTokenizer
from tidybert.tokenization.tokenizer import fitting_lengths

texts_of_numbers = st.lists(st.integers(0, 60_000), max_size=20).map(
    lambda ids: " ".join(map(str, ids))
)


def test_a_text_stands_between_the_special_tokens() -> None:
    (one,) = text_features(NumberTokenizer(), ["7 8 9"], None, 8)

    assert one.input_ids.tolist() == [CLS, 7, 8, 9, SEP]
    assert one.input_ids.dtype == np.int32
    assert one.token_type_ids.tolist() == [0] * 5
    assert one.token_type_ids.dtype == np.uint8
    assert (one.num_tokens, one.truncated) == (5, False)


def test_a_pair_has_a_type_for_each_side() -> None:
    (one,) = text_features(NumberTokenizer(), ["7"], ["8 9"], 8)

    assert one.input_ids.tolist() == [CLS, 7, SEP, 8, 9, SEP]
    assert one.token_type_ids.tolist() == [0, 0, 0, 1, 1, 1]
    assert (one.num_tokens, one.truncated, one.sequence_lengths) == (6, False, (6,))


def test_truncation_keeps_the_last_separator_and_says_so() -> None:
    (one,) = text_features(NumberTokenizer(), ["1 2 3 4"], None, 4)
    assert one.input_ids.tolist() == [CLS, 1, 2, SEP]
    assert (one.num_tokens, one.truncated) == (6, True)

    (one,) = text_features(NumberTokenizer(), ["1 2 3 4"], ["5 6 7"], 7)
    assert one.input_ids.tolist() == [CLS, 1, 2, SEP, 5, 6, SEP]
    assert (one.num_tokens, one.truncated) == (10, True)


def test_an_empty_text_is_its_special_tokens() -> None:
    assert text_features(NumberTokenizer(), [""], None, 8)[0].input_ids.tolist() == [CLS, SEP]
    (pair,) = text_features(NumberTokenizer(), [""], [""], 8)
    assert pair.input_ids.tolist() == [CLS, SEP, SEP]
    assert pair.token_type_ids.tolist() == [0, 0, 1]
    assert text_features(NumberTokenizer(), [], None, 8) == []


@given(texts_of_numbers, texts_of_numbers, st.integers(5, 48))
def test_pairs_are_cut_as_the_original_cuts_them(first: str, second: str, limit: int) -> None:
    left, right = list(map(int, first.split())), list(map(int, second.split()))
    total = len(left) + len(right) + 3
    # run_classifier.py: one token at a time from the longer side, the second when they are equal.
    while len(left) + len(right) > limit - 3:
        (left if len(left) > len(right) else right).pop()

    (one,) = text_features(NumberTokenizer(), [first], [second], limit)

    assert one.input_ids.tolist() == [CLS, *left, SEP, *right, SEP]
    assert one.token_type_ids.tolist() == [0] * (len(left) + 2) + [1] * (len(right) + 1)
    assert one.num_tokens == total
    assert one.truncated == (total > limit)


@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 30))
def test_pairs_are_cut_as_the_tokenizers_library_cuts_them(
    first: int, second: int, room: int
) -> None:
    theirs = Tokenizer(models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    theirs.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    theirs.enable_truncation(room)

    kept = fitting_lengths([first, second], room, odd_to_longer=True)

    ids = theirs.encode("a " * first, "b " * second).ids
    assert kept == [ids.count(0), ids.count(1)]


def test_the_files_say_how_pairs_are_cut(tiny_model: Any, tmp_path: Path) -> None:
    def written(*removed: str, **files: str) -> BertTokenizer:
        folder = tmp_path / "-".join(["model", *removed, *files])
        BertTokenizer.from_pretrained(tiny_model).save(folder)
        for name in ("tokenizer_config.json", *removed):
            (folder / name).unlink()
        for name, content in files.items():
            (folder / name.replace("_json", ".json")).write_text(content)
        return BertTokenizer.from_pretrained(folder)

    pair = "the red hen", "under a cow"
    # A tokenizer.json is cut as its library cuts, a vocab.txt as Google's code does.
    own, alone = written(), written("tokenizer.json")
    assert own.encode(*pair, 8).token_type_ids.count(1) == 4
    assert alone.encode(*pair, 8).token_type_ids.count(1) == 3
    # A RUN was trained one way, and says so; of an older version it is Google's.
    assert not written(tidybert_json="{}").odd_to_longer
    for one, odd_to_longer in ((own, True), (alone, False)):
        folder = tmp_path / f"run-{odd_to_longer}"
        one.with_tokens(["[X]"]).save(folder)
        (folder / "tidybert.json").write_text("{}")
        assert BertTokenizer.from_pretrained(folder).odd_to_longer == odd_to_longer
        assert pickle.loads(pickle.dumps(one)).odd_to_longer == odd_to_longer
    with pytest.raises(ConfigError, match="odd_token_to_longer is 'no': expected true or false"):
        written(tokenizer_config_json='{"odd_token_to_longer": "no"}')


@pytest.mark.parametrize("pair", [None, "we saw a cow and the old dog"])
@pytest.mark.parametrize("limit", [5, 9, 30])
def test_features_are_the_tokenizers_encoding(
    tiny_model: Any, pair: str | None, limit: int
) -> None:
    tokenizer = BertTokenizer.from_pretrained(tiny_model)
    text = "The red hen, under a cow!"

    (one,) = text_features(tokenizer, [text], None if pair is None else [pair], limit)
    encoding = tokenizer.encode(text, pair, limit)

    assert one.input_ids.tolist() == encoding.input_ids
    assert one.token_type_ids.tolist() == encoding.token_type_ids
    assert (one.num_tokens, one.truncated) == (encoding.num_tokens, encoding.truncated)


@pytest.mark.parametrize(("pairs", "limit", "least"), [(None, 2, 3), (["1"], 4, 5)])
def test_a_length_without_room_is_refused(pairs: list[str] | None, limit: int, least: int) -> None:
    with pytest.raises(UsageError, match=f"max_seq_length={limit} .* give at least {least}"):
        text_features(NumberTokenizer(), ["1"], pairs, limit)
    text_features(NumberTokenizer(), ["1"], pairs, least)


def test_examples_keep_their_order_and_have_no_label_yet() -> None:
    examples = [TextExample("1 2 3", None, "a", 2), TextExample("4", None, "b", 3)]

    features = example_features(examples, NumberTokenizer(), 8)

    assert [one.input_ids.tolist() for one in features] == [[CLS, 1, 2, 3, SEP], [CLS, 4, SEP]]
    assert [(one.label, one.weight) for one in features] == [(None, 1.0)] * 2


def test_some_with_a_second_text_and_some_without_are_refused() -> None:
    examples = [TextExample("1", "2", None, 4), TextExample("1", None, None, 9)]

    with pytest.raises(DataError, match="line 9 has no second text, but 1 of 2"):
        example_features(examples, NumberTokenizer(), 8)


def test_an_empty_second_text_is_a_pair_all_the_same() -> None:
    (one,) = example_features([TextExample("1", "", None, 1)], NumberTokenizer(), 8)

    assert one.input_ids.tolist() == [CLS, 1, SEP, SEP]


@pytest.mark.parametrize("text", ["\ud800", None])
def test_what_is_no_text_is_refused(tiny_model: Any, text: Any) -> None:
    tokenizer = BertTokenizer.from_pretrained(tiny_model)

    with pytest.raises(TextError):
        example_features([TextExample(text, None, None, 1)], tokenizer, 8)
