"""A small corpus as files, a tokenizer of its words, and corpora's bytes."""

import hashlib
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tidybert.tokenization import BertTokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [f"{first}{second}" for first in "bcdfglmnprst" for second in ("a", "an", "ed", "om", "u")]


@pytest.fixture(scope="session")
def tokenizer() -> BertTokenizer:
    return BertTokenizer([*SPECIAL, *WORDS, ".", "?", "##s"])


@pytest.fixture(scope="session")
def make_documents() -> Callable[..., list[list[str]]]:
    """Makes documents of paragraphs of sentences, each unlike the others."""

    def make(count: int, seed: int = 0) -> list[list[str]]:
        generator = random.Random(seed)

        def sentence() -> str:
            words = generator.choices(WORDS, k=generator.randint(3, 9))
            return " ".join(words).capitalize() + generator.choice(".?")

        def paragraph() -> str:
            return " ".join(sentence() for _ in range(generator.randint(1, 5)))

        return [[paragraph() for _ in range(generator.randint(1, 4))] for _ in range(count)]

    return make


@pytest.fixture(scope="session")
def text_of() -> Callable[[list[list[str]]], str]:
    """Documents as a text file holds them."""

    def text(documents: list[list[str]]) -> str:
        return "\n".join("\n".join(document) + "\n" for document in documents)

    return text


@pytest.fixture(scope="session")
def bytes_of() -> Callable[[Path], dict[str, str]]:
    """The sha256 of every file of a directory."""

    def digests(directory: Path) -> dict[str, str]:
        return {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()
        }

    return digests
