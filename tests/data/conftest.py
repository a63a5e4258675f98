"""Corpora of token shards from lists of ids, for the tests of what reads them."""

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from tidybert.building.shard_writer import Block, PartWriter
from tidybert.data.shards import MANIFEST_FILE, Manifest
from tidybert.tokenization import BertTokenizer

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

# Sentences of a document, each its ids.
Ids = Sequence[Sequence[int]]


@pytest.fixture(scope="session")
def write_corpus() -> Callable[..., Path]:
    """Writes documents, as sentences of ids from 5 on, to a corpus directory."""

    def write(
        directory: Path,
        train: Sequence[Ids],
        held_out: Sequence[Ids] = (),
        *,
        vocab_size: int = 1000,
        max_shard_tokens: int = 2**27,
    ) -> Path:
        directory.mkdir(parents=True)
        tokens = [*SPECIAL, *(f"w{number}" for number in range(5, vocab_size))]
        tokenizer = BertTokenizer(tokens)
        tokenizer.save(directory)
        parts = {}
        for part, documents in (("train", train), ("held-out", held_out)):
            with PartWriter(directory, part, tokenizer.dtype, max_shard_tokens) as writer:
                if documents:
                    writer.add(block_of(documents))
                parts[part] = writer.finish()
        vocabulary = {
            "sha256": hashlib.sha256((directory / "vocab.txt").read_bytes()).hexdigest(),
            "dtype": "<u2" if vocab_size <= 2**16 else "<u4",
            "vocab_size": vocab_size,
        }
        source = {"file": "a.txt", "train": len(train), "held-out": len(held_out)}
        manifest = Manifest({"vocabulary": vocabulary}, [source], {}, parts)
        (directory / MANIFEST_FILE).write_text(json.dumps(manifest.to_dict()))
        return directory

    return write


def block_of(documents: Sequence[Ids]) -> Block:
    sentences = [sentence for document in documents for sentence in document]
    return Block(
        np.array([each for sentence in sentences for each in sentence]),
        np.array([len(sentence) for sentence in sentences]),
        np.array([len(document) for document in documents]),
    )
