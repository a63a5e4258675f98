"""What the files beside a tokenizer.json say, as transformers takes it, or refused."""

import json
import logging
from pathlib import Path
from typing import Any, Final

import pytest
import transformers
from tests.conftest import TINY_VOCABULARY
from tests.relatives import tokenizer_of

from tidybert.errors import ConfigError, VocabularyError
from tidybert.tokenization import BertTokenizer

TEXTS: Final = ("The red cat", " cat", "a Dog<new>cat saw <new> cow", "Über cat")
ROLES: Final = ("cls", "sep", "pad", "unk", "mask")
NEW: Final = {
    "content": "<new>",
    **dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized", "special"), False),
}


def made(
    folder: Path, kind: str, config: dict[str, Any], changes: dict[str, Any], model_type: str
) -> Path:
    """A directory of a WordPiece (lower-casing or cased) or of byte-level BPE, with changes."""
    if kind == "bytes":
        described = json.loads(tokenizer_of("bytes").to_str())
        names = dict(zip(ROLES, ("<s>", "</s>", "<pad>", "<unk>", "<mask>"), strict=True))
    else:
        BertTokenizer(TINY_VOCABULARY, do_lower_case=kind == "uncased").save(folder / "whole")
        described = json.loads((folder / "whole/tokenizer.json").read_text())
        names = {each: f"[{each.upper()}]" for each in ROLES}
    (folder / "tokenizer.json").write_text(json.dumps({**described, **changes}))
    given = {**{f"{each}_token": name for each, name in names.items()}, **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(given))
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    return folder


def template(single: str, pair: str) -> dict[str, Any]:
    from tokenizers import processors

    ids = [(each, TINY_VOCABULARY.index(each)) for each in ("[CLS]", "[SEP]")]
    found = processors.TemplateProcessing(single=single, pair=pair, special_tokens=ids)
    state: dict[str, Any] = json.loads(found.__getstate__())
    return state


BERT: Final = {"tokenizer_class": "BertTokenizer"}
# transformers 5 gives no types of such a class, unless they are asked for.
FAST: Final = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "model_input_names": ["input_ids", "token_type_ids"],
}
ROBERTA: Final = {"tokenizer_class": "RobertaTokenizer"}
ONE_TYPE: Final = {"post_processor": template("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]")}
PREFIXED: Final = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}
CASES: Final[list[tuple[str, dict[str, Any], dict[str, Any], str]]] = [
    # The class's defaults take the place of tokenizer.json's settings; no class has any.
    ("cased", BERT, {}, "bert"),
    ("cased", {}, {}, "electra"),
    ("cased", {**BERT, "do_lower_case": False}, {}, "bert"),
    ("uncased", {**BERT, "strip_accents": False}, {}, "bert"),
    ("uncased", {**FAST, "do_lower_case": False}, {}, "bert"),
    # What stands around texts, and the types of two.
    ("uncased", FAST, ONE_TYPE, "bert"),
    ("uncased", FAST, {"post_processor": template("$A [SEP]", "$A $B:1 [SEP]:1")}, "bert"),
    ("uncased", {**BERT, "model_input_names": ["input_ids", "attention_mask"]}, {}, "bert"),
    # Space before a text.
    ("bytes", {**ROBERTA, "add_prefix_space": True}, {}, "roberta"),
    ("bytes", {"add_prefix_space": True}, {}, "roberta"),
    ("bytes", ROBERTA, {"pre_tokenizer": PREFIXED}, "roberta"),
    ("bytes", {**FAST, "add_prefix_space": True}, {}, "modernbert"),
    # Added tokens that are described there, or only named.
    ("bytes", {**ROBERTA, "added_tokens_decoder": {"{next}": NEW}}, {}, "roberta"),
    ("bytes", {**ROBERTA, "added_tokens_decoder": {"{next}": {**NEW, "lstrip": True}}}, {}, "bert"),
    ("bytes", {**ROBERTA, "additional_special_tokens": ["<new>"]}, {}, "roberta"),
    ("uncased", {**BERT, "additional_special_tokens": ["<new>", "cat"]}, {}, "bert"),
    ("uncased", {**BERT, "extra_special_tokens": {"image_token": "<new>"}}, {}, "bert"),
    ("uncased", {**BERT, "bos_token": "<new>"}, {}, "bert"),
    # A special token that the model lacks, and one after it.
    ("uncased", {**BERT, "mask_token": "<mask>", "eos_token": "<new>"}, {}, "bert"),
    ("uncased", {**BERT, "mask_token": "<m>", "extra_special_tokens": {"a": "<new>"}}, {}, "bert"),
]


@pytest.mark.parametrize(("kind", "config", "changes", "model_type"), CASES)
def test_ids_and_types_are_those_of_transformers(
    tmp_path: Path, kind: str, config: dict[str, Any], changes: dict[str, Any], model_type: str
) -> None:
    size = tokenizer_of("bytes").get_vocab_size()
    config = json.loads(json.dumps(config).replace("{next}", str(size)))
    theirs = transformers.AutoTokenizer.from_pretrained(
        made(tmp_path, kind, config, changes, model_type)
    )

    ours = BertTokenizer.from_pretrained(tmp_path)

    # A directory of ours says all in its tokenizer.json.
    ours.save(tmp_path / "again")
    (tmp_path / "again/tidybert.json").write_text("{}")
    for each in (ours, BertTokenizer.from_pretrained(tmp_path / "again")):
        for text in TEXTS:
            expected = theirs(text, "a Cow")
            found = each.encode(text, "a Cow")
            assert found.input_ids == expected["input_ids"]
            assert found.token_type_ids == expected.get("token_type_ids", [0] * len(found))
            assert each.encode_batch([text])[0].tolist() == theirs(text)["input_ids"]


@pytest.mark.parametrize(
    ("kind", "config", "changes", "message"),
    [
        ("uncased", BERT, ONE_TYPE, "post_processor puts other special tokens or types around"),
        (
            "uncased",
            {**BERT, "cls_token": "[MASK]"},
            {},
            r"BertTokenizer does with cls_token '\[MA",
        ),
        ("uncased", FAST, {"post_processor": None}, "its post_processor is None"),
        (
            "bytes",
            {**ROBERTA, "cls_token": "<mask>"},
            {},
            "cls_token '<mask>' and sep_token '</s>'",
        ),
        ("uncased", {**BERT, "truncation_side": "left"}, {}, "truncation_side is left"),
        ("bytes", ROBERTA, {"truncation": {"direction": "Left"}}, "truncation_side is left"),
        ("bytes", {**ROBERTA, "added_tokens_decoder": {"999": NEW}}, {}, "has the id 999, and"),
    ],
)
def test_what_would_be_read_otherwise_is_refused(
    tmp_path: Path, kind: str, config: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    made(tmp_path, kind, config, changes, "bert" if kind == "uncased" else "roberta")
    with pytest.raises((ConfigError, VocabularyError), match=message):
        BertTokenizer.from_pretrained(tmp_path)


def test_other_names_beside_a_vocab_txt_are_refused(tmp_path: Path) -> None:
    BertTokenizer(TINY_VOCABULARY).save(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "cls_token": "cat"}))
    with pytest.raises(ConfigError, match=r"has the cls_token 'cat': beside a vocab\.txt, only"):
        BertTokenizer.from_pretrained(tmp_path)


def test_a_default_against_tokenizer_json_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        BertTokenizer.from_pretrained(made(tmp_path, "cased", BERT, {}, "bert"))
    (line,) = caplog.messages
    assert "lowercase is False, but BertTokenizer of transformers makes it True" in line
    # A directory of ours keeps what it says.
    (tmp_path / "tidybert.json").write_text("{}")
    assert not BertTokenizer.from_pretrained(tmp_path).do_lower_case


@pytest.mark.parametrize(
    "config", [ROBERTA, {**ROBERTA, "additional_special_tokens": ["<mask>"]}, FAST]
)
def test_a_tokenizer_that_nothing_changes_is_known_as_before(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    """Indexes and corpora hold a hash of this content."""
    folder = made(tmp_path, "bytes", config, {}, "roberta")
    content = json.loads((folder / "tokenizer.json").read_text())

    found, _special = BertTokenizer.from_pretrained(folder).identity()

    assert json.dumps(found) == json.dumps(content)


def test_odd_entries_beside_a_tokenizer_get_a_sentence(tmp_path: Path) -> None:
    more = {"additional_special_tokens": ["<new>"]}
    folder = made(tmp_path, "bytes", {**ROBERTA, **more}, {}, "roberta")
    (folder / "config.json").write_text('{"model_type": "roberta", "vocab_size": null}')
    assert "<new>" in BertTokenizer.from_pretrained(folder).vocabulary

    wrong = {**ROBERTA, "additional_special_tokens": [{"content": ["a"]}]}
    (folder / "tokenizer_config.json").write_text(json.dumps(wrong))
    with pytest.raises(ConfigError, match=r"has the content \['a'\]"):
        BertTokenizer.from_pretrained(folder)
