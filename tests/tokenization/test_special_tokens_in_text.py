"""Special tokens that a text spells, as a model reads them, beside transformers."""

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tokenization.conftest import LETTERS, PIECES, SPECIAL, WORDS

from tidybert.tasks.tags.tag_files import untagged
from tidybert.tasks.tags.tagging import tagged_features
from tidybert.tokenization import BertTokenizer, Vocabulary

transformers = pytest.importorskip("transformers")

TEXT = "the[SEP] [MASK]wanted [[CLS]] [sep] [UNK][PAD]"
MARKED = BertTokenizer(PIECES).reading(special_tokens_in_text=True)
PARTS = st.lists(st.sampled_from([*SPECIAL, *WORDS, *LETTERS, " ", "[", "SEP", "\ud7ff"]))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("saved")
    MARKED.save(folder)
    return transformers.AutoTokenizer.from_pretrained(folder)


def test_the_ids_are_these() -> None:
    own = Vocabulary([*SPECIAL, "the", "want", "##ed", "[", "]", "sep"])
    marked = BertTokenizer(own).reading(special_tokens_in_text=True)
    ids = [2, 5, 3, 4, 6, 7, 8, 2, 9, 8, 10, 9, 1, 0, 3]
    assert marked.encode(TEXT).input_ids == ids
    assert marked.encode_batch(["the", TEXT])[1].tolist() == ids
    plain = marked.reading(special_tokens_in_text=False)
    assert plain.encode(TEXT).input_ids[:8] == [2, 5, 8, 10, 9, 8, 1, 9]
    assert plain.encode_batch([TEXT])[0].tolist() == BertTokenizer(own).encode(TEXT).input_ids


@settings(deadline=None, max_examples=60)
@given(parts=st.lists(PARTS.map("".join), min_size=1, max_size=4))
def test_all_ways_in_are_those_of_transformers(parts: list[str], theirs: Any) -> None:
    expected = theirs(parts, return_offsets_mapping=True)
    # Few characters go through a dictionary, many through arrays.
    few, many = MARKED.encode_batch(parts), MARKED.encode_batch([*parts, "the good " * 2000])
    located = MARKED.encode_with_offsets(parts)
    for at, text in enumerate(parts):
        ids = expected["input_ids"][at]
        one = MARKED.encode(text)
        assert one.input_ids == few[at].tolist() == many[at].tolist() == ids
        for token, place, span in zip(
            one.tokens[1:-1], one.offset_mapping[1:-1], expected["offset_mapping"][at][1:-1],
            strict=True,
        ):  # fmt: skip
            if token in SPECIAL and token != "[UNK]":
                assert place == span
                assert text[slice(*place)] == token
        assert located[at] == (one.input_ids[1:-1], one.offset_mapping[1:-1])


def test_processes_and_pickles_keep_the_way() -> None:
    again = pickle.loads(pickle.dumps(MARKED))
    assert again.encode(TEXT) == MARKED.encode(TEXT) != BertTokenizer(PIECES).encode(TEXT)
    flat, _ = MARKED.encode_flat([TEXT, "the"], num_workers=1)
    np.testing.assert_array_equal(flat, np.concatenate(MARKED.encode_batch([TEXT, "the"])))
    state = MARKED.__getstate__()
    del state["special_tokens_in_text"]
    old = BertTokenizer.__new__(BertTokenizer)
    old.__setstate__(state)
    assert old.encode(TEXT) == BertTokenizer(PIECES).encode(TEXT)


def test_words_of_a_text_are_read_at_the_token_that_covers_them(theirs: Any) -> None:
    text = "the [SEP] good"
    (read,) = tagged_features([untagged(text, 1)], MARKED, 32, None)
    assert read.input_ids.tolist() == theirs(text)["input_ids"]
    # the, the three of [SEP], good
    assert read.place.rows.tolist() == [1, 2, 2, 2, 3]
