"""The tokenizer's files in a Hugging Face directory.

Reads vocab.txt, tokenizer.json and tokenizer_config.json.  A directory that transformers 5 saves
has no vocab.txt; where both files are there, they must hold the same tokens.  Writes all three, so
that every program finds its own.
"""

import json
import re
from itertools import zip_longest
from pathlib import Path
from typing import Any, NoReturn

from tidybert.errors import ConfigError, VocabularyError
from tidybert.storage.atomic_files import atomic_write_text
from tidybert.storage.json_objects import read_json_object
from tidybert.storage.limits import JSON_BYTES, TOKENIZER_BYTES, VOCABULARY_TOKENS, Limit
from tidybert.storage.model_files import TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, VOCABULARY_FILE
from tidybert.storage.opening import present
from tidybert.storage.own_files import make_directory
from tidybert.tokenization.vocabulary import (
    CLS_TOKEN,
    CONTINUATION,
    SEP_TOKEN,
    SPECIAL_TOKENS,
    UNK_TOKEN,
    Vocabulary,
)
from tidybert.tokenization.wordpiece import MAX_CHARS_PER_WORD

#: The settings of a BasicTokenizer, and what tokenizer.json calls them.
SETTINGS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}

# What a token of a vocab.txt cannot hold.
_NO_LINE = re.compile(r"\n|\r\Z")


def read_directory(directory: Path) -> tuple[Vocabulary, dict[str, bool | None]]:
    """The vocabulary of a directory, and the SETTINGS that its files give.

    Raises VocabularyError for a missing or damaged vocabulary, and where vocab.txt and
    tokenizer.json contradict each other or tokenizer.json is not BERT's tokeniser; ConfigError for
    a file that is not JSON of the expected form, or settings that are not true, false or null;
    LimitError.
    """
    listed, path = directory / VOCABULARY_FILE, directory / TOKENIZER_FILE
    described = _read_object(path, TOKENIZER_BYTES)
    ids = None if described is None else _described_ids(described, path)
    if present(listed, error=VocabularyError):
        vocabulary = Vocabulary.from_file(listed)
        if ids is not None and ids != vocabulary.ids:
            _refuse_other(vocabulary, _vocabulary_of(ids, path), listed, path)
    elif ids is not None:
        vocabulary = _vocabulary_of(ids, path)
    else:
        raise VocabularyError(
            f"{directory} has no vocabulary: expected {VOCABULARY_FILE} or {TOKENIZER_FILE} there"
        )
    config = _read_object(directory / TOKENIZER_CONFIG_FILE, JSON_BYTES) or {}
    normalizer = {} if described is None else _bert_normalizer(described, path)
    settings: dict[str, bool | None] = {}
    for name, rust_name in SETTINGS.items():
        for source, file, key in (
            (normalizer, TOKENIZER_FILE, rust_name),
            (config, TOKENIZER_CONFIG_FILE, name),
        ):
            value = source.get(key)
            if value is not None and not isinstance(value, bool):
                raise ConfigError(
                    f"{directory / file}: {key} is {value!r:.40}: expected true, false or null"
                )
            if key in source:
                settings[name] = value
    return vocabulary, settings


def write_directory(
    directory: Path,
    vocabulary: Vocabulary,
    settings: dict[str, bool | None],
    model_max_length: int,
) -> None:
    """Write the three files; ``settings`` holds all of SETTINGS."""
    make_directory(directory)
    vocabulary.save(directory / VOCABULARY_FILE)
    config = {
        "tokenizer_class": "BertTokenizer",
        **settings,
        "model_max_length": model_max_length,
        **{f"{name}_token": f"[{name.upper()}]" for name in ("unk", "sep", "pad", "cls", "mask")},
    }
    for name, content in (
        (TOKENIZER_CONFIG_FILE, config),
        (TOKENIZER_FILE, _describe(vocabulary, settings)),
    ):
        text = json.dumps(content, ensure_ascii=False, indent=2) + "\n"
        atomic_write_text(directory / name, text)


def _describe(vocabulary: Vocabulary, settings: dict[str, bool | None]) -> dict[str, Any]:
    """The tokeniser as the tokenizers library writes it."""
    ids = {token: index for index, token in enumerate(vocabulary.tokens)}

    def special(token: str, type_id: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": token, "type_id": type_id}}

    first = [special(CLS_TOKEN, 0), {"Sequence": {"id": "A", "type_id": 0}}, special(SEP_TOKEN, 0)]
    second = [{"Sequence": {"id": "B", "type_id": 1}}, special(SEP_TOKEN, 1)]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": ids[token], "content": token, **flags, "special": True}
            for token in sorted(SPECIAL_TOKENS, key=ids.__getitem__)
        ],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            **{rust_name: settings[name] for name, rust_name in SETTINGS.items()},
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": first,
            "pair": first + second,
            "special_tokens": {
                token: {"id": token, "ids": [ids[token]], "tokens": [token]}
                for token in (CLS_TOKEN, SEP_TOKEN)
            },
        },
        "decoder": {"type": "WordPiece", "prefix": CONTINUATION, "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": UNK_TOKEN,
            "continuing_subword_prefix": CONTINUATION,
            "max_input_chars_per_word": MAX_CHARS_PER_WORD,
            "vocab": ids,
        },
    }


def _refuse_other(own: Vocabulary, described: Vocabulary, listed: Path, path: Path) -> NoReturn:
    """Raise VocabularyError: vocab.txt and tokenizer.json do not hold the same tokens."""
    pairs = enumerate(zip_longest(own.tokens, described.tokens))
    index, (one, other) = next((index, pair) for index, pair in pairs if pair[0] != pair[1])
    raise VocabularyError(
        f"{listed} and {path.name} contradict each other: the token with the id {index} is "
        f"{one!r:.40} in one and {other!r:.40} in the other ({len(own)} and {len(described)} "
        "tokens); remove the file that does not belong to the weights"
    )


def _described_ids(described: dict[str, Any], path: Path) -> dict[str, Any]:
    """The ids of the tokens in tokenizer.json; VocabularyError where it is not BERT's WordPiece."""
    model = _object(described.get("model"), "model", path)
    ids = model.get("vocab")
    # Older files leave the type out; only WordPiece has a continuing_subword_prefix of "##".
    if not isinstance(ids, dict) or model.get("continuing_subword_prefix") != CONTINUATION:
        raise VocabularyError(
            f"{path} holds a {model.get('type')} tokeniser: BERT needs WordPiece with "
            f"{CONTINUATION!r}"
        )
    for key, expected in (
        ("unk_token", UNK_TOKEN),
        ("max_input_chars_per_word", MAX_CHARS_PER_WORD),
    ):
        if model.get(key, expected) != expected:
            raise VocabularyError(
                f"{path}: {key} is {model[key]!r:.40}, and BERT's WordPiece has {expected!r}"
            )
    added = [
        _object(token, "one of added_tokens", path)
        for token in _list(described.get("added_tokens"), "added_tokens", path)
    ]
    names = [token.get("content") for token in added]
    foreign = [name for name in names if not isinstance(name, str) or name not in ids]
    if foreign:
        raise VocabularyError(
            f"{path} adds the tokens {foreign!r:.200} outside its vocabulary: put them into it"
        )
    for token in added:
        if token.get("id", ids[token["content"]]) != ids[token["content"]]:
            raise VocabularyError(
                f"{path}: added_tokens gives {token['content']!r:.40} the id {token['id']!r:.40}, "
                f"its vocabulary gives {ids[token['content']]!r:.40}"
            )
    VOCABULARY_TOKENS.check(len(ids), path)
    return ids


def _vocabulary_of(ids: dict[str, Any], path: Path) -> Vocabulary:
    """The vocabulary with these ids; VocabularyError for tokens or ids that a vocab.txt has not."""
    unfit = [token for token in ids if _NO_LINE.search(token)]
    if unfit:
        raise VocabularyError(
            f"{path}: the tokens {unfit!r:.200} hold line breaks: expected each on one line"
        )
    by_id = {index: token for token, index in ids.items() if type(index) is int}
    if len(by_id) < len(ids) or sorted(by_id) != list(range(len(ids))):
        raise VocabularyError(
            f"{path}: the ids of its {len(ids)} tokens are not 0 to {len(ids) - 1}"
        )
    return Vocabulary((by_id[index] for index in range(len(ids))), source=path)


def _bert_normalizer(described: dict[str, Any], path: Path) -> dict[str, Any]:
    """The normalizer with the SETTINGS; VocabularyError unless texts are cut as BERT cuts them."""
    one = _object(described.get("normalizer"), "normalizer", path)
    while one.get("type") == "Sequence":
        inner = _list(one.get("normalizers"), "normalizers", path)
        if len(inner) != 1:
            break
        one = _object(inner[0], "one of normalizers", path)
    cutting = _object(described.get("pre_tokenizer"), "pre_tokenizer", path)
    for key, found, expected in (
        ("normalizer", one.get("type"), "BertNormalizer"),
        ("clean_text of the normalizer", one.get("clean_text", True), True),
        ("pre_tokenizer", cutting.get("type"), "BertPreTokenizer"),
    ):
        if found != expected:
            raise VocabularyError(
                f"{path}: the {key} is {found!r:.40}, and BERT's is {expected!r}: tidybert would "
                "cut texts in another way than the model was trained with"
            )
    return one


def _object(value: object, key: str, path: Path) -> dict[str, Any]:
    """A JSON object, empty for null; raises ConfigError for anything else."""
    if not isinstance(value, dict | None):
        raise ConfigError(f"{path}: {key} is {value!r:.40}: expected a JSON object")
    return value or {}


def _list(value: object, key: str, path: Path) -> list[Any]:
    """A JSON list, empty for null; raises ConfigError for anything else."""
    if not isinstance(value, list | None):
        raise ConfigError(f"{path}: {key} is {value!r:.40}: expected a JSON list")
    return value or []


def _read_object(path: Path, limit: Limit) -> dict[str, Any] | None:
    """The JSON object in a file; None where the file is missing."""
    return read_json_object(path, limit) if present(path, error=ConfigError) else None
