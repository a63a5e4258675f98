"""What the tokenisation tests share: a small vocabulary and the reference tokeniser."""

import os
from collections.abc import Callable
from typing import Any

import pytest

# Read by tokenizers when it first works; without it the reference forks threads beside xdist's.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from tidybert.tokenization import BertTokenizer, Vocabulary

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["want", "wa", "un", "runn", "mask", "cls", "the", "good", "hello", "Hello", "world", "ﬁ"]
ENDINGS = ["want", "ed", "ing", "ness", "s", "a", "b", "e", "i", "x", "o", "2", "σ", "ς", "é", "ﬁ"]
LETTERS = [*"abeisxy12½,.!'[]-。，।中国σςαᾳıßəéÉİᄒ\u0301", "i\u0307"]
ODD_ENDINGS = ["国", "ᅡ", "ᆫ", "α", "\u0301", "\u0307"]
PIECES = [*SPECIAL, *WORDS, *LETTERS, *(f"##{ending}" for ending in ENDINGS + ODD_ENDINGS)]


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    """Some seventy tokens of several scripts."""
    return Vocabulary(PIECES)


@pytest.fixture(scope="session")
def tokenizer(vocabulary: Vocabulary) -> BertTokenizer:
    """An uncased tokenizer of the small vocabulary."""
    return BertTokenizer(vocabulary)


@pytest.fixture(scope="session")
def reference() -> Callable[[BertTokenizer], Any]:
    """Hugging Face's fast tokeniser as ours is set, without special tokens in text."""

    def build(tokenizer: BertTokenizer, special_tokens: bool = False) -> Any:
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

        ids = {token: index for index, token in enumerate(tokenizer.vocabulary.tokens)}
        built = Tokenizer(
            models.WordPiece(vocab=ids, unk_token="[UNK]", max_input_chars_per_word=100)
        )
        built.normalizer = normalizers.BertNormalizer(
            clean_text=True,
            handle_chinese_chars=tokenizer.tokenize_chinese_chars,
            strip_accents=tokenizer.strip_accents,
            lowercase=tokenizer.do_lower_case,
        )
        built.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        if special_tokens:
            built.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
        return built

    return build
