"""A fast scan: the signs of a vector's numbers after a random rotation, a bit each.

The share of bits that differ grows with the angle between two vectors (Charikar 2002, Similarity
Estimation Techniques from Rounding Algorithms).  So the vectors with the fewest other bits than a
query are candidates, and only their products are computed.  How many are needed is measured on the
vectors themselves.  n vectors of d values, W words of 64 bits a vector.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import torch

from tidybert.modeling.kernels.threads import map_on_threads
from tidybert.search.nearest_vectors import Indices, Vectors, top_k
from tidybert.storage.journal import Count

Words = npt.NDArray[np.uint64]
Distances = npt.NDArray[np.uint16]

LEAST_VECTORS: Final = 100_000
"""Below it an exact search takes some ten milliseconds."""
LEAST_RECALL: Final = 0.99
# From so large a share of all vectors on, exact search is not much slower.
_MOST_CANDIDATES: Final = 1 / 32
_MEASURED: Final = 1000
_NEAREST: Final = 10
# Always multiplied together, so that a vector's bits do not depend on how many there are.
_ROWS: Final = 4096
# Their distances stay in a core's cache while the words are added up.
_SCANNED_ROWS: Final = 2**14


class Scan(msgspec.Struct, forbid_unknown_fields=True):
    """What was measured: how many candidates a search for ten needs, and what it then finds.

    Args:
        vectors: how many there were.
        candidates: 0 where no number of them that is worth it finds enough.
        recall: the share of the ten nearest of 1,000 of the vectors that are among so many
            candidates, or among the most that are worth it.
    """

    vectors: Count
    candidates: Count
    recall: float

    def candidates_for(self, count: int, num_vectors: int) -> int:
        """How many to score for so many nearest; 0 where all are to be scored."""
        wanted = self.candidates * max(1, -(-count // _NEAREST))
        return wanted if wanted <= num_vectors * _MOST_CANDIDATES else 0


def sign_bits(vectors: Vectors, first: int = 0) -> Iterator[Words]:
    """(·, W) the bits of the vectors from ``first`` on, in parts."""

    def of(start: int) -> Words:
        some = vectors[start : start + _ROWS]
        block = np.zeros((_ROWS, vectors.shape[1]), dtype=np.float32)
        block[: len(some)] = some
        return _words(block)[max(0, first - start) : len(some)]

    yield from map_on_threads(of, range(first - first % _ROWS, len(vectors), _ROWS))


def _words(block: npt.NDArray[np.float32]) -> Words:
    """(·, W) the bits of a few vectors."""
    rotated = (torch.from_numpy(block) @ _rotation(block.shape[1])).numpy()
    bits = np.packbits(rotated > 0, axis=1)
    return np.pad(bits, ((0, 0), (0, -bits.shape[1] % 8))).view(np.uint64)


@cache
def _rotation(dimension: int) -> torch.Tensor:
    """(d, d), the same for every index."""
    normal = np.random.default_rng(0).standard_normal((dimension, dimension))
    return torch.from_numpy(np.linalg.qr(normal)[0].astype(np.float32))


class SignBits:
    """The bits of vectors, (n, W), held word by word: W / 4 percent of what float32 takes."""

    def __init__(self, words: Words) -> None:
        self._columns = np.ascontiguousarray(words.T)

    def distances(self, query: npt.NDArray[np.float32]) -> Distances:
        """(n,) in how many bits each vector differs from a query (d,)."""
        (wanted,) = _words(query[None].copy())
        found = np.empty(self._columns.shape[1], dtype=np.uint16)

        def scan(start: int) -> None:
            part = slice(start, start + _SCANNED_ROWS)
            found[part] = np.bitwise_count(self._columns[0, part] ^ wanted[0])
            for column, word in zip(self._columns[1:], wanted[1:], strict=True):
                found[part] += np.bitwise_count(column[part] ^ word)

        for _ in map_on_threads(scan, range(0, len(found), _SCANNED_ROWS)):
            pass
        return found

    def nearest(
        self,
        query: npt.NDArray[np.float32],
        count: int,
        allowed: npt.NDArray[np.bool_] | None = None,
    ) -> Indices:
        """The positions of the ``count`` vectors with the smallest distances, in their order.

        ``allowed`` (n,) says which count; more than ``count`` of them.
        """
        found = self.distances(query)
        if allowed is not None:
            found[~allowed] = np.iinfo(np.uint16).max
        most = np.partition(found, count)[count]
        nearer = np.flatnonzero(found < most)
        equal = np.flatnonzero(found == most)[: count - len(nearer)]
        return np.sort(np.concatenate([nearer, equal]))

    def measured(self, vectors: Vectors, scales: npt.NDArray[np.float32] | None) -> Scan:
        """How many candidates the vectors need, by the ten nearest of 1,000 of them."""
        count = len(vectors)
        chosen = np.unique(np.linspace(0, count - 1, _MEASURED).astype(np.int64))
        queries: Any = vectors[chosen].astype(np.float32)
        if scales is not None:
            queries *= scales[chosen, None]
        itself = np.full(count, -1)
        itself[chosen] = chosen
        best, _ = top_k(
            queries, vectors, _NEAREST, scales=scales, groups=chosen, vector_groups=itself
        )
        ranks = []
        for query, positions in zip(queries, best, strict=True):
            distances = self.distances(query)
            ranks += [np.count_nonzero(distances <= distances[at]) for at in positions if at >= 0]
        # A power of two, so that a few more texts seldom change it.
        needed = 2 ** int(np.ceil(np.log2(max(256, np.quantile(ranks, LEAST_RECALL)))))
        most = int(count * _MOST_CANDIDATES)
        return Scan(
            count,
            needed if needed <= most else 0,
            round(float(np.mean(np.array(ranks) <= min(needed, most))), 4),
        )
