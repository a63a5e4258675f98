"""Make what tidybert-small begins from: a MODEL with a smaller vocabulary, and its corpus.

    python -m benchmarks small_prepare TEXTS --out FOLDER

FOLDER/start is minilm with its most frequent tokens alone, and FOLDER/corpus the text in those
tokens.  The table compares vocabularies: tokens a word, the share of words that are one token, that
of [UNK] among the tokens, and the size of float16 weights with both heads of pre-training.  Every
20th document counts tokens, and others measure.  A step whose result exists is left out.
"""

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import torch

from benchmarks.harness.script import add_number, at_least, markdown
from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.checkpoints.model_directory import ModelDirectory, save_model_directory
from tidybert.checkpoints.weights import from_huggingface
from tidybert.corpus.building import build_corpus
from tidybert.corpus.documents import read_documents
from tidybert.modeling import BertForPreTraining
from tidybert.tokenization import BertTokenizer
from tidybert.tokenization.vocabulary import CONTINUATION, SPECIAL_TOKENS

_EVERY: Final = 20
_WORD_EMBEDDINGS: Final = "embeddings.word_embeddings.weight"
_COLUMNS: Final = ("vocabulary", "tokens a word", "words of one token", "[UNK]", "float16")


def main(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("texts", nargs="+", type=Path, metavar="TEXTS", help="as build-corpus")
    parser.add_argument("--out", type=Path, required=True, help="folder of all results")
    parser.add_argument("--model", default="minilm", help="MODEL whose weights it begins with")
    add_number(parser, "size", 20_000, "tokens to keep")
    parser.add_argument(
        "--compare", type=at_least(1), nargs="*", default=[16_000], help="other sizes to measure"
    )
    parser.add_argument("--held-out", type=float, default=0.005, help="share of the documents")
    given = parser.parse_args()
    origin = ModelDirectory.open(given.model)
    start, corpus = given.out / "start", given.out / "corpus"
    if not start.exists():
        write_start(origin, given, start)
    tokenizer = ModelDirectory(start).tokenizer
    manifest = build_corpus(given.texts, tokenizer, corpus, held_out=given.held_out)
    for name, part in manifest.parts.items():
        tokens, documents = (
            sum(getattr(shard, each) for shard in part) for each in ("num_tokens", "num_documents")
        )
        print(f"{corpus}, {name}: {tokens:,} tokens in {documents:,} documents")


def write_start(origin: ModelDirectory, given: argparse.Namespace, directory: Path) -> None:
    """Print the table of vocabularies, and write the MODEL with one of them."""
    counted: list[str] = []
    measured: list[str] = []
    for number, document in enumerate(read_documents(given.texts)):
        if number % _EVERY < 2:
            (measured if number % _EVERY else counted).extend(document)
    tokenizer = origin.tokenizer
    ids, _ = tokenizer.encode_flat(counted, add_special_tokens=False)
    counts = np.bincount(ids, minlength=tokenizer.vocab_size)
    rows = []
    for size in sorted({*given.compare, given.size, tokenizer.vocab_size}, reverse=True):
        rows.append([f"{size:,}", *figures(origin, kept_tokens(tokenizer, counts, size), measured)])
    print("\n".join(markdown(list(_COLUMNS), rows)), flush=True)
    kept = kept_tokens(tokenizer, counts, given.size)
    state = dict(from_huggingface(origin.tensors(), origin.config).tensors)
    state[_WORD_EMBEDDINGS] = state[_WORD_EMBEDDINGS][torch.from_numpy(kept)]
    save_model_directory(
        directory,
        model_state=state,
        config=replace(origin.config, vocab_size=len(kept)),
        tokenizer=with_tokens(tokenizer, kept),
        metadata=ModelMetadata(task="pretrain"),
        architecture="BertModel",
    )


def kept_tokens(tokenizer: BertTokenizer, counts: np.ndarray, size: int) -> np.ndarray:
    """(size,) ids, rising: special tokens, the characters that occur, the most frequent others.

    With its characters, every word that the counted texts have can still be written.
    """
    tokens = tokenizer.vocabulary.tokens
    seen = {char for at in np.flatnonzero(counts) for char in tokens[at].removeprefix(CONTINUATION)}
    needed = np.array(
        [
            token in SPECIAL_TOKENS or (token.removeprefix(CONTINUATION) or token) in seen
            for token in tokens
        ]
    )
    order = np.lexsort((np.arange(len(tokens)), -counts, ~needed))
    return np.sort(order[:size])


def figures(origin: ModelDirectory, kept: np.ndarray, texts: Sequence[str]) -> list[str]:
    """A row of the table, but for the size of the vocabulary."""
    tokenizer = with_tokens(origin.tokenizer, kept)
    words = [word for text in texts for word in text.split()]
    ids, offsets = tokenizer.encode_flat(words, add_special_tokens=False)
    with torch.device("meta"):
        model = BertForPreTraining(replace(origin.config, vocab_size=len(kept)))
    values = sum(each.numel() for each in model.parameters())
    return [
        f"{len(ids) / len(words):.3f}",
        f"{np.mean(np.diff(offsets) == 1):.1%}",
        f"{np.mean(ids == tokenizer.unk_token_id):.3%}",
        f"{2 * values / 1e6:.1f} MB",
    ]


def with_tokens(tokenizer: BertTokenizer, kept: Iterable[int]) -> BertTokenizer:
    """The tokenizer with some of its tokens, in their order."""
    return BertTokenizer(
        [tokenizer.vocabulary.id_to_token(int(each)) for each in kept],
        tokenizer.do_lower_case,
        strip_accents=tokenizer.strip_accents,
        tokenize_chinese_chars=tokenizer.tokenize_chinese_chars,
    )
