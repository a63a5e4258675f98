"""The tokeniser's files: what we write transformers opens, what it writes we open."""

import base64
import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tidybert.errors import ConfigError, LimitError, VocabularyError
from tidybert.tokenization import SPECIAL_TOKENS, BertTokenizer, Vocabulary

TEXTS = ["UNwantéd, running", "中国。 İ É ΟΔΟΣ", "[MASK] [CLS]x", "", "hello\u2028world \x00!"]
WORDPIECE = {"type": "WordPiece", "continuing_subword_prefix": "##"}
BERT = {"type": "BertNormalizer"}
CAPITALS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@pytest.mark.parametrize(
    ("do_lower_case", "strip_accents", "tokenize_chinese_chars"),
    list(itertools.product([True, False], [None, False, True], [True, False])),
)
def test_transformers_opens_what_is_saved_and_the_other_way_round(
    vocabulary: Vocabulary,
    tmp_path: Path,
    do_lower_case: bool,
    strip_accents: bool | None,
    tokenize_chinese_chars: bool,
) -> None:
    transformers = pytest.importorskip("transformers")
    ours = BertTokenizer(
        vocabulary,
        do_lower_case,
        strip_accents=strip_accents,
        tokenize_chinese_chars=tokenize_chinese_chars,
    )
    ours.save(tmp_path / "ours")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
    for text in TEXTS:
        # transformers takes special tokens in a text for what they spell.
        expected = ours.encode(text, special_tokens_in_text=True)
        assert theirs(text)["input_ids"] == expected.input_ids
        pair = ours.encode(text, "un", special_tokens_in_text=True)
        found = theirs(text, "un")
        assert found["input_ids"] == pair.input_ids
        assert found["token_type_ids"] == pair.token_type_ids
    assert theirs.model_max_length == 512

    # transformers 5 writes no vocab.txt.
    theirs.save_pretrained(tmp_path / "theirs")
    assert not (tmp_path / "theirs" / "vocab.txt").exists()
    again = BertTokenizer.from_pretrained(tmp_path / "theirs")
    assert again.identity() == ours.identity()


def test_tokenizer_json_alone_opens_in_tokenizers(tokenizer: BertTokenizer, tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    tokenizer.save(tmp_path)
    described = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    expected = tokenizer.encode("UNwantéd, running", "the", special_tokens_in_text=True)
    found = described.encode("UNwantéd, running", "the")
    assert found.ids == expected.input_ids
    assert found.tokens == expected.tokens
    (tmp_path / "vocab.txt").unlink()
    (tmp_path / "tokenizer_config.json").unlink()
    assert BertTokenizer.from_pretrained(tmp_path).identity() == tokenizer.identity()


def test_without_settings_the_vocabulary_says_whether_it_is_cased(tmp_path: Path) -> None:
    vocab = tmp_path / "vocab.txt"
    Vocabulary([*SPECIAL_TOKENS, *CAPITALS]).save(vocab)
    assert not BertTokenizer.from_pretrained(tmp_path).do_lower_case
    assert not BertTokenizer.from_file(vocab).do_lower_case
    assert BertTokenizer.from_file(vocab, do_lower_case=True).do_lower_case
    Vocabulary([*SPECIAL_TOKENS, "a"]).save(vocab)
    assert BertTokenizer.from_pretrained(tmp_path).do_lower_case
    assert not BertTokenizer.from_pretrained(tmp_path, do_lower_case=False).do_lower_case
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert not BertTokenizer.from_pretrained(tmp_path).do_lower_case


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{", "tokenizer_config.json: not valid JSON"),
        ("[]", "tokenizer_config.json: a JSON object was expected, not list"),
        ('{"do_lower_case": NaN}', "tokenizer_config.json: not valid JSON: NaN"),
        ('{"do_lower_case": "yes"}', "do_lower_case is 'yes': expected true, false or null"),
    ],
)
def test_damaged_settings_are_refused(
    tokenizer: BertTokenizer, tmp_path: Path, config: str, message: str
) -> None:
    tokenizer.save(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(config)
    with pytest.raises(ConfigError, match=message):
        BertTokenizer.from_pretrained(tmp_path)


def replace(pattern: str, content: str, kind: str = "String") -> dict[str, Any]:
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


LONG_MAP = base64.b64encode(bytes(4) + b"x" * 65 + b"\0").decode()


@pytest.mark.parametrize(
    ("steps", "limit"),
    [
        ([replace("a", "b" * 65)], "65 characters; the limit for what a normalizer"),
        ([replace("a", "b" * 65, "Regex")], "65 characters"),
        ([{"type": "Prepend", "prepend": "b" * 65}], "65 characters"),
        ([{"type": "Precompiled", "precompiled_charsmap": LONG_MAP}], "65 characters"),
        ([replace("a", "aa")] * 7, "128 characters"),
        ([replace("a", "bb"), replace("b", "cc")] * 1 + [replace("c", "d" * 64)], "256 characters"),
        ([{"type": "Sequence", "normalizers": [replace("[ab]", "ab", "Regex")] * 7}], "128"),
        ([{"type": "NFC"}] * 101, "101 steps"),
    ],
)
def test_a_normalizer_that_makes_much_of_a_little_is_refused(
    tokenizer: BertTokenizer, tmp_path: Path, steps: list[dict[str, Any]], limit: str
) -> None:
    tokenizer.save(tmp_path)
    path = tmp_path / "tokenizer.json"
    normalizer = {"type": "Sequence", "normalizers": steps}
    path.write_text(json.dumps({**json.loads(path.read_text()), "normalizer": normalizer}))

    with pytest.raises(LimitError, match=limit):
        BertTokenizer.from_pretrained(tmp_path)


def test_a_panic_of_the_library_over_a_text_is_an_error(
    tokenizer: BertTokenizer, tmp_path: Path
) -> None:
    tokenizer.save(tmp_path)
    path = tmp_path / "tokenizer.json"
    steps = [replace("&", " and "), replace("(a+)+$", "x", "Regex")]
    normalizer = {"type": "Sequence", "normalizers": steps}
    path.write_text(json.dumps({**json.loads(path.read_text()), "normalizer": normalizer}))
    opened = BertTokenizer.from_pretrained(tmp_path)

    assert opened.tokenize("b") == tokenizer.tokenize("b")
    for work in (opened.tokenize, lambda text: opened.encode_with_offsets([text])):
        with pytest.raises(VocabularyError, match="cannot compute it"):
            work("a" * 40 + "b")


def test_a_directory_without_vocabulary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VocabularyError, match=r"expected vocab\.txt or tokenizer\.json"):
        BertTokenizer.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": {"type": "BPE", "vocab": {}}}, "the tokenizers library cannot read it"),
        ({"added_tokens": [{"content": "[NEW]"}]}, r"the content '\[NEW\]' and the id None"),
        (
            {"added_tokens": [{"content": "[NEW]", "id": 99}]},
            r"the added token '\[NEW\]' has the id 99, and the next free one is",
        ),
        (
            {"model": {"vocab": {"a": 3}, "continuing_subword_prefix": "##"}, "added_tokens": []},
            "ids of its 1 tokens are not 0 to 0",
        ),
        ({"model": [1]}, r"tokenizer\.json: model is \[1\]: expected a JSON object"),
        ({"model": {**WORDPIECE, "vocab": ["a"]}}, "the tokenizers library cannot read it"),
        ({"model": {**WORDPIECE, "vocab": {"a": 0, "b": "1"}}}, "ids of its 2 tokens are not 0"),
        ({"model": {**WORDPIECE, "vocab": {"a": 0, "b": [1]}}}, "ids of its 2 tokens are not 0"),
        ({"model": {**WORDPIECE, "vocab": {"a": 0, "b": True}}}, "ids of its 2 tokens are not 0"),
        ({"model": {**WORDPIECE, "vocab": {"a": 0, "b": 0}}}, "ids of its 2 tokens are not 0"),
        (
            {"model": {**WORDPIECE, "vocab": {}, "unk_token": "<unk>"}},
            "the tokenizers library cannot read it",
        ),
        (
            {"added_tokens": [{"content": "[CLS]", "id": 0}]},
            r"the added token '\[CLS\]' has the id 0, and",
        ),
        ({"model": {**WORDPIECE, "vocab": {"a\nb": 0}}}, r"\['a\\nb'\] hold line breaks"),
        ({"model": {**WORDPIECE, "vocab": {"\ud800": 0}}}, "surrogates not allowed"),
        ({"added_tokens": {"content": "a"}}, "added_tokens is .*: expected a JSON list"),
        ({"added_tokens": ["a"]}, "one of added_tokens is 'a': expected a JSON object"),
        ({"added_tokens": [{"id": 1}]}, "the content None and the id 1"),
        ({"added_tokens": [{"content": ["a"]}]}, r"the content \['a'\] and the id None"),
        ({"normalizer": "x"}, "normalizer is 'x': expected a JSON object"),
        ({"normalizer": {"type": "Sequence", "normalizers": 1}}, "normalizers is 1: expected"),
        ({"normalizer": {"type": "Sequence", "normalizers": [1]}}, "one of normalizers is 1"),
        (
            {"normalizer": {**BERT, "lowercase": "yes"}},
            "lowercase is 'yes': expected true, false",
        ),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": ""}}, "cannot read it"),
        (
            {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "EAAAAP" + "/" * 80}},
            "cannot read it",
        ),
    ],
)
def test_a_foreign_tokenizer_json_is_refused(
    tokenizer: BertTokenizer, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    tokenizer.save(tmp_path)
    (tmp_path / "vocab.txt").unlink()
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "added_tokens": [], **change}))
    with pytest.raises((ConfigError, VocabularyError), match=message) as caught:
        BertTokenizer.from_pretrained(tmp_path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("lost", ["special_tokens", "single"])
def test_a_post_processor_without_an_entry_is_refused(
    tokenizer: BertTokenizer, tmp_path: Path, lost: str
) -> None:
    tokenizer.save(tmp_path)
    path = tmp_path / "tokenizer.json"
    described = json.loads(path.read_text())
    del described["post_processor"][lost]
    path.write_text(json.dumps(described))
    with pytest.raises(VocabularyError, match="its post_processor lacks an entry or") as caught:
        BertTokenizer.from_pretrained(tmp_path)
    assert lost in str(caught.value)


def test_a_normalizer_in_a_sequence_is_read(tokenizer: BertTokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    path = tmp_path / "tokenizer.json"
    described = json.loads(path.read_text())
    own = {**described["normalizer"], "lowercase": False, "strip_accents": True}
    inner = {"type": "Sequence", "normalizers": [own]}
    described["normalizer"] = {"type": "Sequence", "normalizers": [inner]}
    path.write_text(json.dumps(described))

    read = BertTokenizer.from_pretrained(tmp_path)

    assert not tokenizer.vocabulary.is_cased
    assert (read.do_lower_case, read.strip_accents) == (False, True)


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        (["b", "a"], "the token with the id 5 is 'b' in one and 'a' in the other"),
        (["a"], r"the id 6 is None in one and 'b' in the other \(6 and 7 tokens\)"),
    ],
)
def test_a_vocabulary_that_contradicts_tokenizer_json_is_refused(
    tmp_path: Path, tokens: list[str], said: str
) -> None:
    BertTokenizer([*SPECIAL_TOKENS, "a", "b"]).save(tmp_path)
    Vocabulary([*SPECIAL_TOKENS, *tokens]).save(tmp_path / "vocab.txt")

    with pytest.raises(VocabularyError, match=said):
        BertTokenizer.from_pretrained(tmp_path)


@pytest.mark.parametrize("name", ["vocab.txt", "tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("kind", ["dangling", "pipe"])
def test_a_link_to_nowhere_or_a_pipe_does_not_count_as_absent(
    tokenizer: BertTokenizer, tmp_path: Path, name: str, kind: str
) -> None:
    tokenizer.save(tmp_path)
    (tmp_path / name).unlink()
    if kind == "pipe":
        os.mkfifo(tmp_path / name)
    else:
        (tmp_path / name).symlink_to("nowhere")

    said = {"pipe": "named pipe", "dangling": "link to nowhere, where there is nothing"}[kind]
    with pytest.raises((ConfigError, VocabularyError), match=f"{name}: cannot be read: .*{said}"):
        BertTokenizer.from_pretrained(tmp_path)


def test_a_vocabulary_of_too_many_lines_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(b"\n" * 2_000_001)

    with pytest.raises(LimitError, match="2,000,001 tokens; the limit for a vocabulary is"):
        Vocabulary.from_file(path)
