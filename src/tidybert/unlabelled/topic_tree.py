"""A tree of texts by Ward's method, and the number of topics to cut it into.

N texts, S of them in the tree, n topics, H width.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self

import numpy as np
import numpy.typing as npt
from scipy.cluster.hierarchy import linkage
from scipy.sparse import coo_array, diags_array
from scipy.sparse.linalg import eigsh

from tidybert.errors import DataError
from tidybert.files.rows import count_of
from tidybert.inference.near_duplicates import directions, group_alike
from tidybert.system.reporter import SILENT, Reporter

Floats = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int64]

LEAST_TEXTS: Final = 20
"""Different texts that have topics."""
LARGEST_TREE: Final = 10_000
"""Texts of the tree; those of a larger file are a random draw, and the others join a topic."""
ALIKE: Final = 0.95
"""Cosine from which two texts count as one."""
COUNTED: Final = 3_000
"""Texts whose neighbours tell the number of topics: of more, a topic falls into ever finer ones."""
NEIGHBOURS: Final = 10
SLOW: Final = 0.85
"""Eigenvalue from which a group of texts is a topic; benchmarks/NOTES.md, "Topics", has others."""
MOST_FOUND: Final = 250
ROUNDS: Final = 2
_BLOCK: Final = 1024


@dataclass(frozen=True)
class TopicTree:
    """Texts as a tree that can be cut into any number of topics.

    Args:
        vectors: (N, H) of the texts.
        first: (N,) the first text that says the same; -1 for a text that is not in the tree.
        merges: (S - 1, 2) the two parts that each step joins: a text of the tree, from 0, or S and
            the number of an earlier step, as SciPy counts them.
    """

    vectors: Floats
    first: Indices
    merges: Indices

    @classmethod
    def of(cls, vectors: Floats, reporter: Reporter = SILENT) -> Self:
        """The tree of vectors (N, H); calls ``advance`` with the texts that were compared.

        Raises DataError where fewer than LEAST_TEXTS of them differ.
        """
        if len(vectors) < LEAST_TEXTS:
            raise DataError(f"{count_of(len(vectors), 'text')}: topics need {LEAST_TEXTS} at least")
        found = directions(vectors, vectors.mean(axis=0))
        drawn = np.arange(len(found))
        if len(found) > LARGEST_TREE:
            drawn = np.sort(np.random.default_rng(0).permutation(drawn)[:LARGEST_TREE])
        first = np.full(len(found), -1)
        first[drawn] = drawn[group_alike(found[drawn], ALIKE, reporter).group]
        leaves = np.unique(first[drawn])
        if len(leaves) < LEAST_TEXTS:
            raise DataError(
                f"{len(found):,} texts, of which {len(leaves):,} differ: topics need "
                f"{LEAST_TEXTS} different ones at least"
            )
        merges = linkage(_distances(found[leaves]), "ward")[:, :2].astype(np.int64)
        return cls(vectors, first, merges)

    @cached_property
    def directions(self) -> Floats:
        """(N, H) the vectors from their mean, of length 1."""
        return directions(self.vectors, self.vectors.mean(axis=0))

    @cached_property
    def leaves(self) -> Indices:
        """(S,) the texts of the tree: the first of those that say the same."""
        return np.flatnonzero(self.first == np.arange(len(self.first)))

    @cached_property
    def number(self) -> int:
        """How many topics there are, as far as the texts' neighbours tell.

        A walk from text to neighbour stays long in a topic.  As in spectral clustering (von Luxburg
        2007, section 8.3) the slow eigenvalues of the walk are counted.
        """
        drawn = np.sort(np.random.default_rng(0).permutation(self.leaves)[:COUNTED])
        count = len(drawn)
        near = neighbours(self.directions[drawn], NEIGHBOURS).ravel()
        rows = np.repeat(np.arange(count), NEIGHBOURS)
        graph = coo_array((np.ones(len(near)), (rows, near)), shape=(count, count)).tocsr()
        graph = graph + graph.T
        scale = diags_array(graph.sum(axis=0) ** -0.5)
        walk, wanted = scale @ graph @ scale, 16
        while True:
            wanted = min(2 * wanted, MOST_FOUND, count - 1)
            values = eigsh(walk, wanted, v0=np.ones(count), return_eigenvectors=False)
            if values.min() <= SLOW or wanted in (MOST_FOUND, count - 1):
                return max(2, int((values > SLOW).sum()))

    def cut(self, number: int) -> tuple[Indices, Floats, list[tuple[int, int]]]:
        """(N,) the topic of each text, from 0, the largest first, (n, H) the topics' middles, and
        the pairs as ``parts`` has them.

        Each text has the topic with the nearest middle: first those of the tree, then twice those
        of the texts that joined a topic.  Texts that say the same count once in a middle.
        """
        labels, pairs = self.parts(number)
        middles = self._middles(labels, self.leaves, number)
        for _ in range(ROUNDS):
            found = self._nearest(middles)
            if len(np.unique(found[self.leaves])) < number:
                break
            labels, middles = found, self._middles(found[self.counted], self.counted, number)
        found = self._nearest(middles)
        order = np.argsort(-np.bincount(found, minlength=number), kind="stable")
        place = np.argsort(order)
        new = [*place.tolist(), *range(number, number + len(pairs))]
        return place[found], middles[order], [(new[one], new[other]) for one, other in pairs]

    def parts(self, number: int) -> tuple[Indices, list[tuple[int, int]]]:
        """(S,) the part of each text of the tree, and the pairs of parts that are joined next.

        A joined pair is a part too: its number is ``number`` and its place among the pairs.
        """
        count = len(self.leaves)
        # What each step's number stands for: at the end the topic, or the pair, that it is in.
        steps = count - number
        above = np.arange(count + steps)
        for step, (one, other) in enumerate(self.merges[:steps].tolist()):
            above[[one, other]] = count + step
        for node in range(count + steps - 1, -1, -1):
            above[node] = above[above[node]]
        roots, labels = np.unique(above[:count], return_inverse=True)
        numbers = dict(zip(roots.tolist(), range(number), strict=True))
        pairs = []
        for step, (one, other) in enumerate(self.merges[steps:].tolist(), start=steps):
            pairs.append((numbers[one], numbers[other]))
            numbers[count + step] = number + len(pairs) - 1
        return labels, pairs

    @cached_property
    def counted(self) -> Indices:
        """The texts that count: not those that say what an earlier one of the tree does."""
        return np.flatnonzero((self.first == np.arange(len(self.first))) | (self.first < 0))

    def _middles(self, labels: Indices, texts: Indices, number: int) -> Floats:
        found = np.zeros((number, self.directions.shape[1]), dtype=np.float32)
        np.add.at(found, labels, self.directions[texts])
        scaled: Floats = found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)
        return scaled

    def _nearest(self, middles: Floats) -> Indices:
        found = np.empty(len(self.directions), dtype=np.int64)
        for start in range(0, len(found), _BLOCK):
            part = slice(start, start + _BLOCK)
            found[part] = (self.directions[part] @ middles.T).argmax(axis=1)
        return found


def neighbours(directions: Floats, count: int) -> Indices:
    """(N, count) the nearest other texts of each."""
    found = []
    for start in range(0, len(directions), _BLOCK):
        cosines = directions[start : start + _BLOCK] @ directions.T
        np.fill_diagonal(cosines[:, start:], -2)
        found.append(np.argpartition(-cosines, count, axis=1)[:, :count])
    return np.concatenate(found)


def _distances(directions: Floats) -> npt.NDArray[np.float64]:
    """(S (S - 1) / 2,) the distances of all pairs, as SciPy orders them."""
    wide, count = directions.astype(np.float64), len(directions)
    found = np.empty(count * (count - 1) // 2)
    end = 0
    for start in range(0, count, _BLOCK):
        cosines = wide[start : start + _BLOCK] @ wide.T
        for row, at in zip(cosines, range(start, count), strict=False):
            begin, end = end, end + count - 1 - at
            found[begin:end] = row[at + 1 :]
    return np.sqrt(np.maximum(2 - 2 * found, 0))
