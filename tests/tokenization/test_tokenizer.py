"""BertTokenizer: examples, the reference on any text, offsets, faults, copies and processes."""

import copy
import pickle
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidybert.errors import TextError, UsageError, VocabularyError
from tidybert.tokenization import BertTokenizer, Vocabulary
from tidybert.tokenization.fast import batch_encoder

Reference = Callable[..., Any]
TEXT = "UNwantéd,running"
PIECES = ["un", "##want", "##ed", ",", "runn", "##ing"]

# Letters that build words of the small vocabulary, beside all of Unicode.
FRAGMENTS = [
    *"é É , ' 中 国 각 Σ İ ﬁ",
    "un",
    "want",
    "ed",
    "e\u0301",
    "  ",
    "\n",
    "[MASK]",
    "x" * 101,
]
ODD = ["\x00", "\ufffd", "\u200d", "\u00a0", "👩\u200d🚀"]
texts = st.lists(
    st.one_of(st.sampled_from(FRAGMENTS + ODD), st.characters(exclude_categories=["Cs", "Cn"])),
    max_size=12,
).map("".join)


def test_the_original_example(tokenizer: BertTokenizer) -> None:
    assert tokenizer.tokenize(TEXT) == PIECES
    encoding = tokenizer.encode(TEXT)
    assert encoding.tokens == ["[CLS]", *PIECES, "[SEP]"]
    assert encoding.input_ids == tokenizer.convert_tokens_to_ids(encoding.tokens)
    assert [TEXT[start:end] for start, end in encoding.offset_mapping] == [
        *("", "UN", "want", "éd", ",", "runn", "ing", "")
    ]
    assert not encoding.truncated
    assert encoding.num_tokens == len(encoding) == 8


def test_a_pair(tokenizer: BertTokenizer) -> None:
    encoding = tokenizer.encode("the good", "un,", max_seq_length=6)
    assert encoding.tokens == ["[CLS]", "the", "good", "[SEP]", "un", "[SEP]"]
    assert encoding.token_type_ids == [0, 0, 0, 0, 1, 1]
    assert encoding.sequence_ids == [None, 0, 0, None, 1, None]
    assert encoding.offset_mapping == [(0, 0), (0, 3), (4, 8), (0, 0), (0, 2), (0, 0)]
    assert encoding.truncated
    assert encoding.num_tokens == 7


def test_an_empty_second_text_still_makes_a_pair(tokenizer: BertTokenizer) -> None:
    assert tokenizer.encode("un", "").tokens == ["[CLS]", "un", "[SEP]", "[SEP]"]


def test_without_special_tokens(tokenizer: BertTokenizer) -> None:
    encoding = tokenizer.encode("un", "the", 1, add_special_tokens=False)
    assert (encoding.tokens, encoding.num_tokens, encoding.truncated) == (["un"], 2, True)


def test_special_tokens_in_a_text_are_plain_unless_asked_for(tokenizer: BertTokenizer) -> None:
    text = "the [MASK]un[CLS]!"
    plain = ["the", "[", "mask", "]", "un", "[", "cls", "]", "!"]
    assert tokenizer.tokenize(text) == plain
    (ids,) = tokenizer.encode_batch([text], add_special_tokens=False)
    assert tokenizer.convert_ids_to_tokens(ids) == plain
    special = ["the", "[MASK]", "un", "[CLS]", "!"]
    assert tokenizer.tokenize(text, special_tokens_in_text=True) == special
    encoding = tokenizer.encode(text, special_tokens_in_text=True)
    sources = [text[start:end] for start, end in encoding.offset_mapping]
    assert sources == ["", "the", "[MASK]", "un", "[CLS]", "!", ""]


@given(text=texts)
def test_any_text_has_the_ids_of_the_reference(
    text: str, tokenizer: BertTokenizer, reference: Reference
) -> None:
    oracle = reference(tokenizer).encode(text, add_special_tokens=False)
    encoding = tokenizer.encode(text, add_special_tokens=False)
    (fast,) = tokenizer.encode_batch([text], add_special_tokens=False)
    assert encoding.input_ids == fast.tolist() == oracle.ids
    assert encoding.tokens == oracle.tokens == tokenizer.tokenize(text)
    for (start, end), (their_start, their_end) in zip(
        encoding.offset_mapping, oracle.offsets, strict=True
    ):
        # Ours take in a decomposed accent after a letter, which the reference leaves out.
        assert start == their_start
        assert end >= their_end
        assert tokenizer.tokenize(text[their_end:end]) == []


@given(text=texts)
def test_any_text_has_the_ids_of_the_reference_with_special_tokens_in_it(
    text: str, tokenizer: BertTokenizer, reference: Reference
) -> None:
    oracle = reference(tokenizer, special_tokens=True).encode(text, add_special_tokens=False)
    encoding = tokenizer.encode(text, add_special_tokens=False, special_tokens_in_text=True)
    assert encoding.input_ids == oracle.ids


@given(text=texts)
def test_any_cased_text_has_the_ids_of_the_reference(
    text: str, vocabulary: Vocabulary, reference: Reference
) -> None:
    cased = BertTokenizer(vocabulary, do_lower_case=False)
    oracle = reference(cased).encode(text, add_special_tokens=False)
    assert cased.encode(text, add_special_tokens=False).input_ids == oracle.ids
    assert cased.encode_batch([text], add_special_tokens=False)[0].tolist() == oracle.ids


@pytest.mark.parametrize("few_characters", [0, 10**6], ids=["many", "few"])
@given(batch=st.lists(texts, max_size=5), add_special_tokens=st.booleans())
def test_a_batch_is_its_texts(
    batch: list[str], add_special_tokens: bool, few_characters: int, tokenizer: BertTokenizer
) -> None:
    expected = [
        tokenizer.encode(text, add_special_tokens=add_special_tokens).input_ids for text in batch
    ]
    with mock.patch.object(batch_encoder, "_FEW_CHARACTERS", few_characters):
        arrays = tokenizer.encode_batch(batch, add_special_tokens)
        flat, offsets = tokenizer.encode_flat(batch, add_special_tokens)
    assert [array.tolist() for array in arrays] == expected
    assert flat.tolist() == [index for ids in expected for index in ids]
    assert offsets.tolist() == np.cumsum([0, *map(len, expected)]).tolist()
    assert flat.dtype == np.uint16
    assert offsets.dtype == np.int64


def test_a_large_vocabulary_takes_wider_ids(vocabulary: Vocabulary) -> None:
    tokens = [*vocabulary.tokens, *(f"[unused{number}]" for number in range(2**16)), "zz"]
    large = BertTokenizer(tokens)
    for num_texts in (1, 10_000):
        ids = large.encode_batch(["zz un"] * num_texts)[-1]
        assert ids.dtype == np.int32
        assert large.convert_ids_to_tokens(ids) == ["[CLS]", "zz", "un", "[SEP]"]


@pytest.mark.parametrize("num_texts", [1, 10_000])
def test_arrays_can_be_written_to(tokenizer: BertTokenizer, num_texts: int) -> None:
    arrays = tokenizer.encode_batch(["un"] * num_texts)
    arrays[-1][1] = tokenizer.mask_token_id
    decoded = [tokenizer.decode(ids, skip_special_tokens=False) for ids in arrays[-2:]]
    assert decoded == ["[CLS] un [SEP]", "[CLS] [MASK] [SEP]"][-num_texts:]


def test_decode(tokenizer: BertTokenizer) -> None:
    assert tokenizer.decode(tokenizer.encode(TEXT).input_ids) == "unwanted, running"
    with pytest.raises(VocabularyError, match="id 9999 is not in a vocabulary"):
        tokenizer.decode([9999])


@pytest.mark.parametrize("call", ["tokenize", "encode", "encode_batch", "encode_flat"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ab \ud800", r"U\+D800 at position 3"),
        (None, "of type NoneType: expected a string"),
        (1.5, "1.5, of type float"),
        (b"ab", "of type bytes"),
    ],
)
def test_what_is_no_text_is_refused(
    tokenizer: BertTokenizer, call: str, text: Any, message: str
) -> None:
    batch = call.startswith("encode_")
    with pytest.raises(TextError, match=("text 1 .*" if batch else "text .*") + message):
        getattr(tokenizer, call)(["un", text] if batch else text)


@pytest.mark.parametrize(
    ("text", "message"),
    [("ab \ud800", r"U\+D800 at position 3"), (b"ab", "of type bytes"), (None, "of type NoneType")],
)
def test_what_is_no_text_is_refused_among_many(
    tokenizer: BertTokenizer, text: Any, message: str
) -> None:
    batch = ["the good"] * 3000
    expected = tokenizer.encode_flat(batch)[0].tolist()
    for _ in range(2):
        with pytest.raises(TextError, match=f"text 2999 .*{message}"):
            tokenizer.encode_batch([*batch[1:], text])
        assert tokenizer.encode_flat(batch)[0].tolist() == expected


def test_a_string_is_no_batch(tokenizer: BertTokenizer) -> None:
    with pytest.raises(TextError, match="wrap it"):
        tokenizer.encode_batch("un")


def test_the_second_text_is_named(tokenizer: BertTokenizer) -> None:
    with pytest.raises(TextError, match="text_pair has the lone surrogate"):
        tokenizer.encode("un", "\udfff")


@pytest.mark.parametrize(("pair", "least"), [(None, 2), ("un", 3)])
def test_no_room_for_special_tokens_is_refused(
    tokenizer: BertTokenizer, pair: str | None, least: int
) -> None:
    assert len(tokenizer.encode("un", pair, least)) == least
    with pytest.raises(UsageError, match=f"expected at least {least}"):
        tokenizer.encode("un", pair, least - 1)


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))])
def test_copies_have_the_settings_and_an_empty_cache(
    vocabulary: Vocabulary, clone: Callable[[BertTokenizer], BertTokenizer]
) -> None:
    original = BertTokenizer(vocabulary, strip_accents=False, tokenize_chinese_chars=False)
    original.encode_batch([TEXT] * 3)
    copied = clone(original)
    assert repr(copied) == repr(original)
    assert len(pickle.dumps(original)) < 5000
    assert copied.encode(TEXT) == original.encode(TEXT)
    assert copied.tokenize("中国é") == original.tokenize("中国é")


def test_spawned_workers_give_the_same_ids(tokenizer: BertTokenizer) -> None:
    batch = [f"un{number} want, {TEXT}" for number in range(4500)]
    flat, offsets = tokenizer.encode_flat(batch, num_workers=2)
    expected, expected_offsets = tokenizer.encode_flat(batch)
    np.testing.assert_array_equal(flat, expected)
    np.testing.assert_array_equal(offsets, expected_offsets)
    assert flat.dtype == expected.dtype
    with pytest.raises(TextError, match="text 4500 has the lone surrogate"):
        tokenizer.encode_batch([*batch, "\ud800"], num_workers=2)


def test_no_texts(tokenizer: BertTokenizer) -> None:
    for num_workers in (0, 1):
        flat, offsets = tokenizer.encode_flat([], num_workers=num_workers)
        assert (flat.tolist(), offsets.tolist(), flat.dtype) == ([], [0], np.uint16)
    with pytest.raises(UsageError, match="num_workers is -1"):
        tokenizer.encode_batch(["un"], num_workers=-1)


def test_the_scripts_of_a_vocabulary_are_those_of_its_letters() -> None:
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused1]", "1", "!", "##₂"]
    tokens += ["a", "##b", "é", "ﬁ", "д", "中", "ก"]

    assert BertTokenizer(tokens).scripts() == {"Latin": 4, "Cyrillic": 1, "CJK": 1, "Thai": 1}


def test_a_pickle_of_an_older_version_opens(tokenizer: BertTokenizer) -> None:
    """It held what the constructor was given, and nothing else."""
    settings = {"do_lower_case": True, "strip_accents": None, "tokenize_chinese_chars": True}
    found = BertTokenizer.__new__(BertTokenizer)
    found.__setstate__({"vocab": tokenizer.vocabulary, **settings, "added": ()})

    assert found.encode("wanted", "the good") == tokenizer.encode("wanted", "the good")
