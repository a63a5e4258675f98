"""The k vectors with the largest products, found exactly, in blocks on all threads.

``top_k`` equals sorting all products, in memory that does not grow with the number of vectors.
m queries, n vectors, d values a vector.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tidybert.errors import DataError, UsageError, param
from tidybert.modeling.kernels.linear import product
from tidybert.modeling.kernels.threads import map_on_threads

Vectors = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]

DTYPES: Final = ("float32", "float16", "int8")
"""Of vectors; products are float32 whatever the vectors are."""

_QUERIES: Final = 128
# One thread's work; results are the same for any number of threads because this is fixed.
_SEGMENT_ROWS: Final = 2**16
# A block of float32 that stays in a core's cache while it is converted and multiplied.
_BLOCK_BYTES: Final = 2**21
# Products of float32 depend on the shape of a block in their last bits.  So this many more than k
# are kept, multiplied again in float64 one by one, and ordered by that.
_SPARE: Final = 16
_RESCORED_VALUES: Final = 2**20


def top_k(
    queries: Vectors,
    vectors: Vectors,
    k: int,
    *,
    scales: Scores | None = None,
    groups: Indices | None = None,
    vector_groups: Indices | None = None,
) -> tuple[Indices, Scores]:
    """Positions and products of the ``k`` vectors with the largest product, the largest first.

    Both are (m, min(k, n)), int64 and float32; of equal products the first position comes first.
    A result does not depend on the other queries or the number of threads.  For cosines give
    vectors of length 1.

    Args:
        queries: (m, d) numbers.
        vectors: (n, d) float32, float16 or int8, also mapped from a file.
        scales: (n,) what each vector is multiplied by, for int8.
        groups: (m,) a vector of a query's own group does not count.  Where too few are left, the
            position is -1 and the product -inf.
        vector_groups: (n,) the groups of the vectors.

    Raises UsageError for shapes or types that do not fit and for k below 1, and DataError for a
    number that is not finite.
    """
    queries = np.ascontiguousarray(queries, dtype=np.float32)
    _check(queries, vectors, k, scales, groups, vector_groups)
    count = min(k, len(vectors))
    search = _Search(vectors, count, scales, vector_groups)
    positions = np.full((len(queries), count), -1, dtype=np.int64)
    scores = np.full((len(queries), count), -np.inf, dtype=np.float32)
    pieces = [
        _Piece(start, queries[start : start + _QUERIES], first, _part(groups, start))
        for start in range(0, len(queries), _QUERIES)
        for first in range(0, len(vectors), _SEGMENT_ROWS)
    ]
    if not count:
        return positions, scores
    for piece, found in zip(pieces, map_on_threads(search.of, pieces), strict=True):
        for number, best in enumerate(found.each(len(piece.queries)), start=piece.start):
            both = (
                np.concatenate([positions[number], best.positions]),
                np.concatenate([scores[number], best.scores]),
            )
            # Missing ones are at the end: nothing finite is below -inf.
            order = np.lexsort((both[0], -both[1]))[:count]
            positions[number], scores[number] = both[0][order], both[1][order]
    return positions, scores


@dataclass(frozen=True)
class _Piece:
    """Some queries, the number of their first one, and the position of a segment's first vector."""

    start: int
    queries: Scores
    first: int
    groups: Indices | None


@dataclass(frozen=True)
class _Found:
    """Candidates side by side: the number of their query, their position and score."""

    queries: Indices
    positions: Indices
    scores: Scores

    def best(self, count: int) -> "_Found":
        """The best ``count`` of each query, in order."""
        order = np.lexsort((self.positions, -self.scores, self.queries))
        queries = self.queries[order]
        rank = np.arange(len(order)) - np.searchsorted(queries, queries)
        kept = order[rank < count]
        return _Found(self.queries[kept], self.positions[kept], self.scores[kept])

    def least(self, num_queries: int, count: int) -> Tensor:
        """(m,) the last score of each query that has ``count``, else -inf; in order already."""
        ends = np.searchsorted(self.queries, np.arange(num_queries + 1))
        last = self.scores[np.maximum(ends[1:] - 1, 0)]
        return torch.from_numpy(np.where(np.diff(ends) == count, last, np.float32(-np.inf)))

    def each(self, num_queries: int) -> Iterator["_Found"]:
        """The candidates of one query after another; they must be in order."""
        ends = np.searchsorted(self.queries, np.arange(num_queries + 1))
        for start, end in pairwise(ends):
            part = slice(start, end)
            yield _Found(self.queries[part], self.positions[part], self.scores[part])


@dataclass(frozen=True)
class _Search:
    vectors: Vectors
    count: int
    scales: Scores | None
    groups: Indices | None

    def of(self, piece: _Piece) -> _Found:
        """The best of a segment for each query of a piece, scored exactly."""
        kept, num_queries = self.count + _SPARE, len(piece.queries)
        # As many new candidates as kept ones, and the least score of those kept rises again.
        most = 2 * kept * num_queries
        queries = torch.from_numpy(piece.queries)
        least = torch.full((num_queries,), -torch.inf)
        found: list[_Found] = []
        held = 0
        for first, block in self._blocks(piece.first):
            products = product(block, queries) if num_queries > 1 else block @ queries.T
            if self.scales is not None:
                products *= _tensor(self.scales[first : first + len(block)])[:, None]
            if self.groups is not None and piece.groups is not None:
                own = self.groups[first : first + len(block), None] == piece.groups
                products[torch.from_numpy(own)] = -torch.inf
            peak = products.amax(0)
            if peak.isnan().any():
                raise _not_finite(first, products)
            if not (peak > least).any():
                continue
            if not found and len(block) > kept:
                least = products.kthvalue(len(block) - kept + 1, 0).values
                # Equal ones count in the first block, where the best are not known yet.
                hits = (products >= least) & (products > -torch.inf)
            else:
                hits = products > least
            rows, numbers = torch.nonzero(hits, as_tuple=True)
            scores = products[rows, numbers].numpy()
            found.append(_Found(numbers.numpy(), first + rows.numpy(), scores))
            held += len(rows)
            if held > most:
                found = [_together(found).best(kept)]
                held = len(found[0].queries)
                least = torch.maximum(least, found[0].least(num_queries, kept))
        return self._rescored(_together(found).best(kept), piece).best(self.count)

    def _blocks(self, first: int) -> Iterator[tuple[int, Tensor]]:
        """A segment in blocks (rows, d) of float32, each with the position of its first vector."""
        dimension = self.vectors.shape[1]
        rows = max(64, _BLOCK_BYTES // (4 * dimension))
        end = min(first + _SEGMENT_ROWS, len(self.vectors))
        memory = torch.empty((0 if self.vectors.dtype == np.float32 else rows, dimension))
        for start in range(first, end, rows):
            block = _tensor(self.vectors[start : min(start + rows, end)])
            if len(memory):
                block = memory[: len(block)].copy_(block)
            yield start, block

    def _rescored(self, found: _Found, piece: _Piece) -> _Found:
        """The same candidates with products in float64, rounded: equal vectors have equal ones."""
        scores = np.empty_like(found.scores)
        step = max(1, _RESCORED_VALUES // self.vectors.shape[1])
        for start in range(0, len(scores), step):
            part = slice(start, start + step)
            at = found.positions[part]
            products = self.vectors[at].astype(np.float64) * piece.queries[found.queries[part]]
            sums = products.sum(axis=1)
            scores[part] = sums if self.scales is None else sums * self.scales[at]
        return _Found(found.queries, found.positions, scores)


def _together(found: list[_Found]) -> _Found:
    if not found:
        nothing = np.empty(0, dtype=np.int64)
        return _Found(nothing, nothing, np.empty(0, dtype=np.float32))
    return _Found(
        np.concatenate([each.queries for each in found]),
        np.concatenate([each.positions for each in found]),
        np.concatenate([each.scores for each in found]),
    )


def _tensor(array: Vectors) -> Tensor:
    """A tensor of the same memory; of a copy where PyTorch cannot use that."""
    usable = array.flags.c_contiguous and array.flags.writeable
    return torch.from_numpy(array if usable else array.copy())


def _part(values: Indices | None, start: int) -> Indices | None:
    return None if values is None else np.asarray(values)[start : start + _QUERIES]


def _not_finite(first: int, products: Tensor) -> DataError:
    row = int(torch.nonzero(products.isnan())[0, 0])
    return DataError(f"the vector at position {first + row} holds a number that is not finite")


def _check(
    queries: Scores,
    vectors: Vectors,
    k: int,
    scales: Scores | None,
    groups: Indices | None,
    vector_groups: Indices | None,
) -> None:
    if k < 1:
        raise UsageError(f"{param('top_k', k)}: give a number from 1 on")
    shapes = queries.shape, vectors.shape
    if queries.ndim != 2 or vectors.ndim != 2 or queries.shape[1] != vectors.shape[1]:
        raise UsageError(
            f"queries are {shapes[0]} and vectors {shapes[1]}: expected (m, d) and (n, d), with "
            "the same d"
        )
    if vectors.dtype.name not in DTYPES:
        raise UsageError(f"vectors are {vectors.dtype}: expected one of {', '.join(DTYPES)}")
    for name, values, count in (
        ("scales", scales, len(vectors)),
        ("groups", groups, len(queries)),
        ("vector_groups", vector_groups, len(vectors)),
    ):
        if values is not None and np.shape(values) != (count,):
            raise UsageError(f"{name} are {np.shape(values)}: expected ({count},)")
    if (groups is None) != (vector_groups is None):
        raise UsageError("groups and vector_groups belong together: give both, or none")
    if not np.isfinite(queries).all():
        row = int(np.flatnonzero(~np.isfinite(queries).all(axis=1))[0])
        raise DataError(f"query {row} holds a number that is not finite")
