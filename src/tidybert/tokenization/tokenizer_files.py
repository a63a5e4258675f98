"""The tokenizer's files in a Hugging Face directory.

Reads vocab.txt, tokenizer.json, tokenizer_config.json, added_tokens.json and
special_tokens_map.json, as transformers 4 and 5 write them.  A directory that transformers 5 saves
has no vocab.txt; where both files are there, they must hold the same tokens.  A tokenizer.json that
is not BERT's WordPiece is the tokenizers library's to compute.
"""

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, NoReturn

from tidybert.errors import ConfigError, VocabularyError
from tidybert.storage.atomic_files import atomic_write_text
from tidybert.storage.json_objects import read_json_object
from tidybert.storage.limits import JSON_BYTES, TOKENIZER_BYTES, VOCABULARY_TOKENS, Limit
from tidybert.storage.model_files import (
    ADDED_TOKENS_FILE,
    CONFIG_FILE,
    METADATA_FILE,
    SPECIAL_TOKENS_FILE,
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    VOCABULARY_FILE,
)
from tidybert.storage.opening import present
from tidybert.storage.own_files import make_directory
from tidybert.tokenization.library_encoder import AddedToken, Layout, LibraryEncoder
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
_DEFAULTS: Final = {"do_lower_case": True, "strip_accents": None, "tokenize_chinese_chars": True}

# Classes of transformers that put their own settings and layout in the place of tokenizer.json's,
# with that layout; and the class of a model_type, where no file names one.
_BERTS: Final = ("BertTokenizer", "ElectraTokenizer", "DistilBertTokenizer")
_ROBERTAS: Final = ("RobertaTokenizer", "XLMRobertaTokenizer", "CamembertTokenizer")
_CLASSES: Final = {
    "bert": _BERTS[0],
    "electra": _BERTS[1],
    "distilbert": _BERTS[2],
    "modernbert": "fast",
    **dict(zip(("roberta", "xlm-roberta", "camembert"), _ROBERTAS, strict=True)),
}
_LOGGER: Final = logging.getLogger(__name__)

# A key of tokenizer_config.json that tidybert alone writes.
ODD_TO_LONGER: Final = "odd_token_to_longer"
# What a token of a vocab.txt cannot hold.
_NO_LINE = re.compile(r"\n|\r\Z")


_ROLES: Final = ("pad", "unk", "cls", "sep", "mask")
# What the roles are called where no file says it: by BERT, and by RoBERTa and its relatives.
_NAMES: Final = (SPECIAL_TOKENS, ("<pad>", "<unk>", "<s>", "</s>", "<mask>"))


@dataclass(frozen=True)
class TokenizerFiles:
    """What a directory says of its tokenizer.

    vocabulary: all tokens, added ones last.  settings: the SETTINGS that its files give.  added:
    the tokens that are found in a text before it is cut, but for those of ``special``, the names
    for padding, unknown words, beginnings, ends and masks.  described: the content of a
    tokenizer.json that the library computes; None where texts are cut as BERT cuts them.
    config: the content of tokenizer_config.json.  has_types: whether the second of two texts has
    token types of its own.  odd_to_longer: see ``fitting_lengths``.
    """

    vocabulary: Vocabulary
    settings: dict[str, bool | None]
    added: tuple[AddedToken, ...] = ()
    special: Sequence[str] = SPECIAL_TOKENS
    described: dict[str, Any] | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    has_types: bool = True
    odd_to_longer: bool = False


def read_directory(directory: Path) -> TokenizerFiles:
    """The tokenizer's files of a directory."""
    files = _read_files(directory)
    path = directory / TOKENIZER_CONFIG_FILE
    # Other programs cut by the library wherever there is a tokenizer.json; older RUNs did not.
    is_theirs = present(directory / TOKENIZER_FILE, error=ConfigError) and not present(
        directory / METADATA_FILE, error=ConfigError
    )
    value = files.config.get(ODD_TO_LONGER, is_theirs)
    if not isinstance(value, bool):
        raise ConfigError(f"{path}: {ODD_TO_LONGER} is {value!r:.40}: expected true or false")
    return replace(files, odd_to_longer=value)


def _read_files(directory: Path) -> TokenizerFiles:
    listed, path = directory / VOCABULARY_FILE, directory / TOKENIZER_FILE
    described = _read_object(path, TOKENIZER_BYTES)
    beside = _Beside.of(directory, described)
    config = beside.config
    others = [
        f"{role}_token {name!r:.40}"
        for role, own in zip(_ROLES, SPECIAL_TOKENS, strict=True)
        if (name := beside.name_of(role) or own) != own
    ]
    if described is None and others:
        raise ConfigError(
            f"{directory / TOKENIZER_CONFIG_FILE} has the {others[0]}: beside a {VOCABULARY_FILE}, "
            f"only {', '.join(SPECIAL_TOKENS)} can be read"
        )
    if described is not None and (
        not _is_berts(described, path) or others or not _stands_as_berts(described, beside.kind)
    ):
        return _of_the_library(beside, described)
    ids: dict[str, Any] | None = None
    if described is not None:
        ids = described["model"]["vocab"]
        VOCABULARY_TOKENS.check(len(ids), path)
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
    normalizer = {} if described is None else _bert_normalizer(described, path)
    settings: dict[str, bool | None] = {}
    # transformers takes them from one file; a directory of ours has the same in both.
    is_class = described is not None and beside.kind in _BERTS
    is_file = described is not None and beside.kind and not is_class
    for name, rust_name in SETTINGS.items():
        for source, file, key, counts in (
            (normalizer, TOKENIZER_FILE, rust_name, not is_class),
            (config, TOKENIZER_CONFIG_FILE, name, not is_file),
        ):
            value = source.get(key)
            if value is not None and not isinstance(value, bool):
                raise ConfigError(
                    f"{directory / file}: {key} is {value!r:.40}: expected true, false or null"
                )
            if counts and key in source:
                settings[name] = value
        if is_class and name not in settings:
            settings[name] = _DEFAULTS[name]
            if normalizer.get(rust_name) != _DEFAULTS[name]:
                _LOGGER.warning(
                    f"{path}: {rust_name} is {normalizer.get(rust_name)}, but {beside.kind} of "
                    f"transformers makes it {_DEFAULTS[name]}, and so does this program: write "
                    f"{name} into {TOKENIZER_CONFIG_FILE} to choose"
                )
    added = beside.added_tokens(described, vocabulary.ids)
    vocabulary = _with_added(vocabulary, added, directory if described is None else path)
    own = tuple(each for each in added if each.content not in SPECIAL_TOKENS)
    return TokenizerFiles(vocabulary, settings, own, config=config, has_types=beside.has_types)


@dataclass(frozen=True)
class _Beside:
    """What the files beside a tokenizer.json say.

    kind: transformers' class of the tokenizer; "" where nothing names it, and for a directory of
    ours, whose tokenizer.json says all.  named: the entries that name special tokens.  model: the
    content of config.json.
    """

    directory: Path
    config: dict[str, Any]
    kind: str
    named: Mapping[str, Any]
    model: Mapping[str, Any]

    @classmethod
    def of(cls, directory: Path, described: Mapping[str, Any] | None) -> "_Beside":
        """Reads them; ConfigError for a tokenizer that keeps the ends of long texts."""
        files = (TOKENIZER_CONFIG_FILE, SPECIAL_TOKENS_FILE, CONFIG_FILE)
        config, mapped, model = (_read_object(directory / each, JSON_BYTES) or {} for each in files)
        usual = model.get("tokenizer_class") or _CLASSES.get(str(model.get("model_type")), "")
        is_ours = present(directory / METADATA_FILE, error=ConfigError)
        named_class = str(config.get("tokenizer_class") or usual).removesuffix("Fast")
        kind = "" if is_ours else named_class
        cut = (described or {}).get("truncation")
        side = cut.get("direction") if isinstance(cut, dict) else None
        if kind and str(config.get("truncation_side", side)).lower() == "left":
            raise ConfigError(
                f"{directory}: truncation_side is left in {TOKENIZER_CONFIG_FILE}, or direction in "
                f"{TOKENIZER_FILE}: only the beginnings of long texts can be kept; write right"
            )
        # transformers reads the older file where the newer entry is missing.
        named = config if "added_tokens_decoder" in config else {**config, **mapped}
        return cls(directory, config, kind, named, model)

    @property
    def has_types(self) -> bool:
        """Whether the second of two texts has token types of its own."""
        given = self.config.get("model_input_names")
        return "token_type_ids" in given if given else self.kind not in _BERTS[2:] + _ROBERTAS

    def name_of(self, role: str) -> Any:
        """The special token of a role, None where no file names it."""
        return _content(self.named.get(f"{role}_token"))

    def added_tokens(
        self, described: dict[str, Any] | None, ids: Mapping[str, int]
    ) -> tuple[AddedToken, ...]:
        """Those that files describe and, as in transformers, those that are only named special."""
        found: dict[str, AddedToken] = {}
        path = self.directory / TOKENIZER_FILE
        for each in _list((described or {}).get("added_tokens"), "added_tokens", path):
            token = _added(_object(each, "one of added_tokens", path), path)
            found[token.content] = token
        path = self.directory / TOKENIZER_CONFIG_FILE
        decoder = _object(self.config.get("added_tokens_decoder"), "added_tokens_decoder", path)
        for number, each in decoder.items():
            values = _object(each, f"added_tokens_decoder.{number}", path)
            token = _added({**values, "id": int(number) if number.isdecimal() else number}, path)
            found[token.content] = token
        named: list[Any] = [self.named.get(f"{role}_token") for role in ("bos", "eos", *_ROLES)]
        for key in ("additional_special_tokens", "extra_special_tokens"):
            value = self.named.get(key)
            named += value.values() if isinstance(value, dict) else _list(value, key, path)
        # As transformers 4 wrote them, before the decoder was there.
        listed = _read_object(self.directory / ADDED_TOKENS_FILE, JSON_BYTES)
        for content, number in (listed or {}).items() if not decoder else ():
            special = content in map(_content, named)
            values = {"content": content, "id": number, "special": special}
            token = _added(
                {**values, "normalized": not special}, self.directory / ADDED_TOKENS_FILE
            )
            found.setdefault(content, token)
        free = max([len(ids) - 1, *(one.id for one in found.values())]) + 1
        # transformers fails at a token for which the model has no row; here it is characters.
        size = self.model.get("vocab_size")
        for each in named if self.kind else ():
            content = _content(each)
            is_text = isinstance(content, str)
            row = ids.get(content, free) if is_text else free
            is_known = not content or (is_text and content in found)
            if not is_known and (type(size) is not int or row < size):
                values = {**(each if isinstance(each, dict) else {}), "id": row, "special": True}
                found[content] = _added({**values, "content": content}, path)
                free = max(free, row + 1)
        return tuple(sorted(found.values(), key=lambda each: each.id))

    def opened(self, described: dict[str, Any], ids: Mapping[str, int]) -> dict[str, Any]:
        """A tokenizer.json with what transformers takes from these files."""
        given, added = described.get("added_tokens") or [], self.added_tokens(described, ids)
        # As they are there if they say the same: older indexes and corpora know this content.
        path = self.directory / TOKENIZER_FILE
        if {_added(each, path) for each in given} != {*added}:
            given = [asdict(each) for each in added]
        found = {**described, "added_tokens": given}
        cutting, normalizer = described.get("pre_tokenizer"), described.get("normalizer")
        if (
            self.kind == _ROBERTAS[0]
            and isinstance(cutting, dict)
            and "add_prefix_space" in cutting
        ):
            prefix = bool(self.config.get("add_prefix_space"))
            found["pre_tokenizer"] = {**cutting, "add_prefix_space": prefix}
        if self.kind in _BERTS and isinstance(normalizer, dict) and "lowercase" in normalizer:
            taken = {
                rust: self.config.get(name, _DEFAULTS[name]) for name, rust in SETTINGS.items()
            }
            found["normalizer"] = {**normalizer, **taken}
        return found if self.kind else described


def _content(given: object) -> Any:
    """The text of a token that a file has as text or as an object."""
    return given.get("content") if isinstance(given, dict) else given


def _stands_as_berts(described: dict[str, Any], kind: str) -> bool:
    """Whether a WordPiece puts around texts what BERT does."""
    ids = described["model"]["vocab"]
    if not described.get("post_processor") or not {CLS_TOKEN, SEP_TOKEN} <= ids.keys():
        return kind in ("", *_BERTS)
    return _layout_in(described) == Layout.of_bert(ids[CLS_TOKEN], ids[SEP_TOKEN])


def _added(values: dict[str, Any], path: Path) -> AddedToken:
    """An added token as a file has it; raises ConfigError for values of other types."""
    content, number = values.get("content"), values.get("id")
    if not isinstance(content, str) or not content or type(number) is not int:
        raise ConfigError(
            f"{path}: an added token has the content {content!r:.40} and the id {number!r:.40}: "
            "expected a text and a whole number"
        )
    flags = {}
    for name in ("special", "single_word", "lstrip", "rstrip", "normalized"):
        value = values.get(name, name == "normalized" and not values.get("special"))
        if not isinstance(value, bool):
            raise ConfigError(
                f"{path}: {name} of {content!r:.40} is {value!r:.40}: expected true or false"
            )
        flags[name] = value
    return AddedToken(content, number, **flags)


def _with_added(vocabulary: Vocabulary, added: Sequence[AddedToken], source: Path) -> Vocabulary:
    """The vocabulary that ends with the added tokens that it lacks; VocabularyError for bad ids."""
    more = [each for each in added if each.content not in vocabulary]
    for place, each in enumerate(more, len(vocabulary)):
        if each.id != place:
            raise VocabularyError(
                f"{source}: the added token {each.content!r:.40} has the id {each.id}, and the "
                f"next free one is {place}"
            )
    for each in added:
        if each.content in vocabulary:
            _check_id(each, vocabulary.token_to_id(each.content), source)
    if not more:
        return vocabulary
    tokens = [*vocabulary.tokens, *(each.content for each in more)]
    return Vocabulary(tokens, source=source, num_added=len(more))


def _check_id(added: AddedToken, number: int, source: Path) -> None:
    if added.id != number:
        raise VocabularyError(
            f"{source}: the added token {added.content!r:.40} has the id {added.id}, and its "
            f"vocabulary gives {number}"
        )


def _of_the_library(beside: _Beside, described: dict[str, Any]) -> TokenizerFiles:
    """A tokenizer.json of another kind, and the names of its special tokens."""
    path, kind = beside.directory / TOKENIZER_FILE, beside.kind
    ids = LibraryEncoder(described, (), path).tokens()
    opened = beside.opened(described, ids)
    if opened != described:
        described, ids = opened, LibraryEncoder(opened, (), path).tokens()
    special = []
    for role, usual in zip(_ROLES, zip(*_NAMES, strict=True), strict=True):
        name = beside.name_of(role) or next((each for each in usual if each in ids), None)
        if not isinstance(name, str) or name not in ids:
            raise VocabularyError(
                f"{path} has no {role} token: expected {role}_token in {TOKENIZER_CONFIG_FILE}, or "
                f"{' or '.join(usual)} in its vocabulary"
            )
        special.append(name)
    added = [
        _added(_object(each, "one of added_tokens", path), path)
        for each in _list(described.get("added_tokens"), "added_tokens", path)
    ]
    for each in added:
        _check_id(each, ids[each.content], path)
    if kind in _BERTS + _ROBERTAS and described.get("post_processor"):
        make = Layout.of_bert if kind in _BERTS else Layout.of_roberta
        own, found = make(ids[special[2]], ids[special[3]]), _layout_in(described)
        if found != own and (kind in _BERTS or found.of_one_type() != own):
            raise VocabularyError(
                f"{path}: its post_processor puts other special tokens or types around texts than "
                f"{kind} does with cls_token {special[2]!r:.40} and sep_token {special[3]!r:.40}. "
                f"Write the tokenizer_class PreTrainedTokenizerFast into {TOKENIZER_CONFIG_FILE} "
                "to follow the post_processor, or remove it to follow the class"
            )
    VOCABULARY_TOKENS.check(len(ids), path)
    return TokenizerFiles(
        _vocabulary_of(ids, path, special),
        {},
        tuple(each for each in added if each.content not in special),
        special,
        described,
        beside.config,
        beside.has_types,
    )


def _is_berts(described: dict[str, Any], path: Path) -> bool:
    """Whether a tokenizer.json cuts texts as BERT does: by WordPiece, after BERT's normalizer."""
    model = _object(described.get("model"), "model", path)
    one = _bert_normalizer(described, path)
    cutting = _object(described.get("pre_tokenizer"), "pre_tokenizer", path)
    return (
        # Older files leave the type out; only WordPiece has a continuing_subword_prefix of "##".
        isinstance(model.get("vocab"), dict)
        and model.get("continuing_subword_prefix") == CONTINUATION
        and model.get("unk_token", UNK_TOKEN) == UNK_TOKEN
        and model.get("max_input_chars_per_word", MAX_CHARS_PER_WORD) == MAX_CHARS_PER_WORD
        and one.get("type") == "BertNormalizer"
        and one.get("clean_text", True) is True
        and cutting.get("type") == "BertPreTokenizer"
    )


def write_directory(
    directory: Path,
    vocabulary: Vocabulary,
    settings: dict[str, bool | None],
    added: Sequence[AddedToken],
    limits: Mapping[str, Any],
) -> None:
    """Write the files of a WordPiece tokenizer; ``settings`` holds all of SETTINGS."""
    make_directory(directory)
    vocabulary.save(directory / VOCABULARY_FILE)
    special = [each.content for each in added if each.special]
    config = {
        "tokenizer_class": "BertTokenizer",
        **settings,
        **limits,
        **{f"{name}_token": f"[{name.upper()}]" for name in ("unk", "sep", "pad", "cls", "mask")},
        **(
            {
                "added_tokens_decoder": {
                    str(each.id): {"content": each.content, **_flags(each), "special": each.special}
                    for each in _all_added(vocabulary, added)
                }
            }
            if added
            else {}
        ),
        **({"additional_special_tokens": special} if special else {}),
    }
    _write_json(directory / TOKENIZER_CONFIG_FILE, config)
    _write_json(directory / TOKENIZER_FILE, described_wordpiece(vocabulary, settings, added))


def limits_of(
    model_max_length: int, reads_segments: bool, odd_to_longer: bool | None
) -> dict[str, Any]:
    """What tokenizer_config.json says of the model: its length, how pairs fit, what it reads."""
    # Other programs give every input of the class, and a model without segments refuses theirs.
    names = {} if reads_segments else {"model_input_names": ["input_ids", "attention_mask"]}
    pairs = {} if odd_to_longer is None else {ODD_TO_LONGER: odd_to_longer}
    return {"model_max_length": model_max_length, **pairs, **names}


def write_library_files(
    directory: Path, described: dict[str, Any], config: Mapping[str, Any]
) -> None:
    """Write the files of a tokenizer that the library computes, as they were read."""
    make_directory(directory)
    _write_json(directory / TOKENIZER_CONFIG_FILE, config)
    _write_json(directory / TOKENIZER_FILE, described)


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    atomic_write_text(path, json.dumps(content, ensure_ascii=False, indent=2) + "\n")


def _flags(token: AddedToken) -> dict[str, bool]:
    return {
        name: getattr(token, name) for name in ("single_word", "lstrip", "rstrip", "normalized")
    }


def _all_added(vocabulary: Vocabulary, added: Sequence[AddedToken]) -> list[AddedToken]:
    """Added tokens and BERT's special ones, by their ids."""
    berts = [
        AddedToken(token, vocabulary.token_to_id(token), special=True, normalized=False)
        for token in SPECIAL_TOKENS
    ]
    return sorted([*berts, *added], key=lambda each: each.id)


def described_wordpiece(
    vocabulary: Vocabulary, settings: dict[str, bool | None], added: Sequence[AddedToken]
) -> dict[str, Any]:
    """The tokeniser as the tokenizers library writes it."""
    num_own = len(vocabulary) - vocabulary.num_added
    ids = {token: index for index, token in enumerate(vocabulary.tokens[:num_own])}

    def special(token: str, type_id: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": token, "type_id": type_id}}

    first = [special(CLS_TOKEN, 0), {"Sequence": {"id": "A", "type_id": 0}}, special(SEP_TOKEN, 0)]
    second = [{"Sequence": {"id": "B", "type_id": 1}}, special(SEP_TOKEN, 1)]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": each.id, "content": each.content, **_flags(each), "special": each.special}
            for each in _all_added(vocabulary, added)
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


def _vocabulary_of(
    ids: dict[str, Any], path: Path, special: Sequence[str] | None = None
) -> Vocabulary:
    """The vocabulary with these ids; VocabularyError for tokens or ids that a vocab.txt has not.

    ``special``: of another kind of tokenizer, which no vocab.txt holds.
    """
    unfit = [token for token in ids if _NO_LINE.search(token)]
    if unfit and special is None:
        raise VocabularyError(
            f"{path}: the tokens {unfit!r:.200} hold line breaks: expected each on one line"
        )
    by_id = {index: token for token, index in ids.items() if type(index) is int}
    if len(by_id) < len(ids) or sorted(by_id) != list(range(len(ids))):
        raise VocabularyError(
            f"{path}: the ids of its {len(ids)} tokens are not 0 to {len(ids) - 1}"
        )
    return Vocabulary(
        (by_id[index] for index in range(len(ids))),
        source=path,
        special=special or SPECIAL_TOKENS,
    )


def _bert_normalizer(described: dict[str, Any], path: Path) -> dict[str, Any]:
    """The normalizer; a sequence of one is that one."""
    one = _object(described.get("normalizer"), "normalizer", path)
    while one.get("type") == "Sequence":
        inner = _list(one.get("normalizers"), "normalizers", path)
        if len(inner) != 1:
            break
        one = _object(inner[0], "one of normalizers", path)
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


def layout_of(files: TokenizerFiles) -> Layout:
    """What the post-processor of a tokenizer.json puts around one text and two."""
    assert files.described is not None
    found = _layout_in(files.described)
    return found if files.has_types else found.of_one_type()


def _layout_in(described: Mapping[str, Any]) -> Layout:
    try:
        return _layout_of_steps(described)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise VocabularyError(
            f"{TOKENIZER_FILE}: its post_processor lacks an entry or holds one of another kind "
            f"({type(error).__name__}: {error!s:.80}): expected what the tokenizers library writes"
        ) from None


def _layout_of_steps(described: Mapping[str, Any]) -> Layout:
    steps = [described.get("post_processor") or {}]
    while any(step.get("type") == "Sequence" for step in steps):
        steps = [
            each for step in steps
            for each in (step["processors"] if step.get("type") == "Sequence" else [step])
        ]  # fmt: skip
    found = [step for step in steps if step.get("type") in _LAYOUTS]
    if len(found) != 1:
        kinds = ", ".join(str(step.get("type")) for step in steps)
        raise VocabularyError(
            f"{TOKENIZER_FILE}: its post_processor is {kinds}, and one of {', '.join(_LAYOUTS)} is "
            "expected, which puts special tokens around texts"
        )
    return _LAYOUTS[found[0]["type"]](found[0])


def _of_template(step: dict[str, Any]) -> Layout:
    def parts(template: list[dict[str, Any]]) -> tuple[tuple[int | None, int], ...]:
        found: list[tuple[int | None, int]] = []
        for each in template:
            ((kind, part),) = each.items()
            numbers = [None] if kind == "Sequence" else step["special_tokens"][part["id"]]["ids"]
            found += [(number, part["type_id"]) for number in numbers]
        return tuple(found)

    return Layout(parts(step["single"]), parts(step["pair"]))


_LAYOUTS: Final[dict[str, Callable[[dict[str, Any]], Layout]]] = {
    "TemplateProcessing": _of_template,
    "BertProcessing": lambda step: Layout.of_bert(step["cls"][1], step["sep"][1]),
    "RobertaProcessing": lambda step: Layout.of_roberta(step["cls"][1], step["sep"][1]),
}
