"""Tokens a word of learnt vocabularies on held-out text, beside the tokenizers library's defaults.

Both sides learn from the same documents and are measured on the same held-out ones.  The library's
is BertWordPieceTokenizer with its own normalisation and limits.  Without FILES, the corpus in the
data folder (TIDYBERT_DATA, or ../shared/data) is read.
"""

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

from benchmarks.harness import datasets, script
from tidybert.corpus.documents import read_documents
from tidybert.corpus.screening import HeldOut
from tidybert.tokenization import BasicTokenizer, BertTokenizer, Vocabulary
from tidybert.tokenization.learning.vocabulary_training import (
    WordCounts,
    measure_fit,
    train_vocabulary,
)

SIZES: Final = (4000, 8000, 16000, 30522)


def theirs(files: Sequence[str], held_out: float, size: int) -> Vocabulary:
    """What the library learns by default."""
    from tokenizers import BertWordPieceTokenizer

    documents = HeldOut(held_out).rest(read_documents(files))
    lines = (line for document in documents for line in document)
    tokenizer = BertWordPieceTokenizer()
    tokenizer.train_from_iterator(lines, vocab_size=size, show_progress=False)
    ids = tokenizer.get_vocab()
    return Vocabulary(sorted(ids, key=ids.__getitem__))


def measurements(files: Sequence[str], sizes: Sequence[int], held_out: float) -> Iterator[Any]:
    """(size, side, seconds of learning, fit) of each vocabulary."""
    counts, held = WordCounts(BasicTokenizer()), HeldOut(held_out)

    def read() -> None:
        for document in held.rest(read_documents(files)):
            counts.add(document)
        counts.finish()

    _, reading, _ = script.timed(read)
    texts = [line for document in held.documents for line in document]
    for size in sizes:
        mine, seconds, _ = script.timed(partial(train_vocabulary, counts, size))
        fit = measure_fit(BertTokenizer(mine.vocabulary), texts)
        yield size, "tidybert", reading + seconds, fit
        other, seconds, _ = script.timed(partial(theirs, files, held_out, size))
        yield size, "tokenizers", seconds, measure_fit(BertTokenizer(other), texts)


def main(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="*", metavar="FILE", help="text, as train-vocab reads it")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--held-out", type=float, default=0.005)
    given = parser.parse_args()
    files = given.files or [str(datasets.data_folder() / "corpus")]
    heads = ("size", "side", "tokens a word", "unknown words", "characters a token", "seconds")
    rows = []
    for size, side, seconds, fit in measurements(files, given.sizes, given.held_out):
        rates = f"{fit.pieces_per_word:.4f}", f"{fit.unknown_rate:.4%}"
        rows.append(
            (f"{size:,}", side, *rates, f"{fit.characters_per_token:.3f}", f"{seconds:.0f}")
        )
        print(*rows[-1], flush=True)
    print("\n".join(script.markdown(heads, rows)))
