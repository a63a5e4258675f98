"""Vectors of a corpus's tokens, counted from nearby tokens and not trained.

Positive pointwise mutual information of a token with those up to four places away, and its largest
singular vectors (Levy, Goldberg and Dagan 2015, "Improving distributional similarity with lessons
learned from word embeddings": contexts' distribution smoothed by 0.75, singular values weighted by
0.5).  A pair counts by 1 / distance, as in GloVe (Pennington et al. 2014).  V tokens of the
vocabulary, C context tokens, W width.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tidybert.corpus.token_shards import TokenCorpus

_REACH: Final = 4
_SMOOTHING: Final = 0.75
_ROUNDS: Final = 4  # of the randomized decomposition
# Bounds time, to half a minute, and the rest memory, to a gigabyte.
_MOST_TOKENS: Final = 2**25
_MOST_CELLS: Final = 2**25
_WINDOW: Final = 2**15
_CHUNK: Final = 2**20

Array = npt.NDArray[np.int64]
Ids = npt.NDArray[np.int32]


@dataclass(frozen=True)
class TokenVectors:
    """vectors (V, W) float32: of unit variance over all that were counted, 0 for the others.

    counts (V,) int64: how often each token was seen; ``num_tokens``: how many were read.
    """

    vectors: npt.NDArray[np.float32]
    counts: Array

    @property
    def num_tokens(self) -> int:
        return int(self.counts.sum())


def token_vectors(
    corpus: TokenCorpus, width: int, *, shares: Sequence[float] = (1.0,), seed: int = 0
) -> TokenVectors:
    """Count the tokens near each token, and decompose the counts.

    Reads at most 34 million tokens, by their ``shares`` from the corpora that ``corpus`` joins, and
    evenly spread over each.  The contexts are the most
    frequent tokens, as many as the bound on memory allows: half of a vocabulary of 8,192.  With
    fewer than W contexts, the last columns are 0.
    """
    size = int(corpus.manifest.vocabulary["vocab_size"])
    pieces = [
        piece
        for each, share in zip(corpus.corpora, shares, strict=True)
        for piece in _selected(each, int(share * _MOST_TOKENS))
    ]
    counts = np.zeros(size, np.int64)
    for piece in pieces:
        counts += np.bincount(piece, minlength=size)
    number = min(size, max(1, _MOST_CELLS // size))
    contexts = np.argsort(-counts, kind="stable")[:number]
    contexts = contexts[counts[contexts] > 0]
    association = _association(_nearby(pieces, size, contexts))
    rank = min(width, len(contexts), int((counts > 0).sum()))
    vectors = np.zeros((size, width), np.float32)
    if rank:
        vectors[:, :rank] = _decomposed(association, rank, seed)
        vectors[counts == 0] = 0.0
    spread = vectors[counts > 0].std() if rank else 0.0
    return TokenVectors(vectors / spread if spread else vectors, counts)


def _selected(corpus: TokenCorpus, most_tokens: int) -> list[Ids]:
    """The ids of windows of the corpus: all of it, or evenly spread over it.

    A window may cross the ends of documents, which affects one pair in hundreds.
    """
    number, size = -(-most_tokens // _WINDOW), corpus.num_tokens
    starts = np.arange(0, size, _WINDOW)
    if len(starts) > number:
        starts = np.arange(number) * size // number
    # No window crosses into another file.
    after = corpus.first_token[corpus.first_token.searchsorted(starts, "right")]
    ends = np.minimum(starts + _WINDOW, after)
    pieces = corpus.tokens(starts, ends)
    for ids in pieces:
        corpus.check_ids(ids)
    return [ids.astype(np.int32) for ids in pieces]


def _nearby(pieces: list[Ids], size: int, contexts: Array) -> npt.NDArray[np.float32]:
    """(V, C): how often a context is near a token, weighted by 1 / distance, within a piece."""
    column = np.full(size + 1, -1, np.int64)
    column[contexts] = np.arange(len(contexts))
    # An id that is neither token nor context separates the pieces.
    border = np.full(_REACH, size, np.int32)
    ids = np.concatenate([part for piece in pieces for part in (piece, border)])
    found = np.zeros(size * len(contexts), np.float32)
    for start in range(0, len(ids), _CHUNK):
        chunk = ids[start : start + _CHUNK + _REACH]
        keys, weights = [], []
        for distance in range(1, _REACH + 1):
            left, right = chunk[:_CHUNK], chunk[distance : _CHUNK + distance]
            left = left[: len(right)]
            for one, other in ((left, right), (right, left)):
                places = column[other]
                counted = (places >= 0) & (one < size)
                keys.append(one[counted] * np.int64(len(contexts)) + places[counted])
                weights.append(np.full(len(keys[-1]), 1 / distance))
        found += np.bincount(
            np.concatenate(keys), np.concatenate(weights), minlength=len(found)
        ).astype(np.float32)
    return found.reshape(size, len(contexts))


def _association(found: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Positive pointwise mutual information, in place."""
    total = found.sum(dtype=np.float64)
    rows = found.sum(1, dtype=np.float64)
    smoothed = found.sum(0, dtype=np.float64) ** _SMOOTHING
    expected = smoothed / max(smoothed.sum(), 1e-30)
    with np.errstate(divide="ignore", invalid="ignore"):
        np.log(found, out=found)
        found -= np.log(rows).astype(np.float32)[:, None]
        found -= np.log(expected).astype(np.float32)
    found[~(found > 0)] = 0.0
    return found if total else np.zeros_like(found)


def _decomposed(
    association: npt.NDArray[np.float32], rank: int, seed: int
) -> npt.NDArray[np.float32]:
    from sklearn.utils.extmath import randomized_svd

    # scikit-learn takes seeds of 32 bits.
    seed %= 2**32
    left, values, _ = randomized_svd(association, rank, n_iter=_ROUNDS, random_state=seed)
    vectors: npt.NDArray[np.float32] = (left * np.sqrt(values)).astype(np.float32)
    return vectors
