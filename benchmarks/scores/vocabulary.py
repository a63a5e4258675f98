"""Tokens a word of learnt vocabularies on held-out text, beside the tokenizers library's defaults.

Both sides learn from the same documents and are measured on the same held-out ones.  The library's
is BertWordPieceTokenizer with its own normalisation and limits.  Without FILES, the corpus in the
data folder (TIDYBERT_DATA, or ../shared/data) is read.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.harness.datasets import data_folder
from benchmarks.harness.rounds import script_parser
from benchmarks.harness.tables import markdown
from tidybert.corpus.documents import Document, read_documents
from tidybert.corpus.screening import HeldOut
from tidybert.tokenization import BasicTokenizer, BertTokenizer, Vocabulary
from tidybert.tokenization.learning.vocabulary_training import (
    Fit,
    WordCounts,
    measure_fit,
    train_vocabulary,
)

SIZES = (4000, 8000, 16000, 30522)


def ours(counts: WordCounts, size: int) -> Vocabulary:
    """What tidybert train-vocab learns by default."""
    return train_vocabulary(counts, size).vocabulary


def theirs(documents: Iterator[Document], size: int) -> Vocabulary:
    """What the library learns by default."""
    from tokenizers import BertWordPieceTokenizer

    tokenizer = BertWordPieceTokenizer()
    tokenizer.train_from_iterator(
        (line for document in documents for line in document),
        vocab_size=size,
        show_progress=False,
    )
    ids = tokenizer.get_vocab()
    return Vocabulary(sorted(ids, key=ids.__getitem__))


def measurements(files: Sequence[str], sizes: Sequence[int], held_out: float) -> Iterator[Any]:
    """(size, side, seconds of learning, Fit) of each vocabulary."""
    counts, held = WordCounts(BasicTokenizer()), HeldOut(held_out)
    started = time.perf_counter()
    for document in held.rest(read_documents(files)):
        counts.add(document)
    counts.finish()
    reading = time.perf_counter() - started
    texts = [line for document in held.documents for line in document]
    for size in sizes:
        started = time.perf_counter()
        vocabulary = ours(counts, size)
        yield size, "tidybert", reading + time.perf_counter() - started, _fit(vocabulary, texts)
        started = time.perf_counter()
        vocabulary = theirs(HeldOut(held_out).rest(read_documents(files)), size)
        yield size, "tokenizers", time.perf_counter() - started, _fit(vocabulary, texts)


def _fit(vocabulary: Vocabulary, texts: Sequence[str]) -> Fit:
    return measure_fit(BertTokenizer(vocabulary), texts)


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("files", nargs="*", metavar="FILE", help="text, as train-vocab reads it")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--held-out", type=float, default=0.005)
    given = parser.parse_args()
    files = given.files or [str(data_folder() / "corpus")]
    heads = ("size", "side", "tokens a word", "unknown words", "characters a token", "seconds")
    rows = []
    for size, side, seconds, fit in measurements(files, given.sizes, given.held_out):
        rows.append(
            (
                f"{size:,}",
                side,
                f"{fit.pieces_per_word:.4f}",
                f"{fit.unknown_rate:.4%}",
                f"{fit.characters_per_token:.3f}",
                f"{seconds:.0f}",
            )
        )
        print(*rows[-1], flush=True)
    print("\n".join(markdown(heads, rows)))
