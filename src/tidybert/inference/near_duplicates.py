"""Near-duplicates: texts whose vectors point in almost the same direction, and groups of them.

The products are computed in blocks, so memory grows with the number of texts and not with its
square.  N texts, H width.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

from tidybert.files.text_examples import TextExample
from tidybert.modeling.kernels.linear import product
from tidybert.modeling.kernels.threads import map_on_threads
from tidybert.system.reporter import SILENT, Reporter

Floats = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int64]

COLUMNS: Final = ("group", "row", "text", "nearest", "cosine")
_BLOCK: Final = 1024
_ROUNDING: Final = 1e-4


def directions(vectors: Floats, centre: Floats) -> Floats:
    """(N, H) the vectors from ``centre`` (H,), scaled to length 1.

    Vectors of many encoders share one large direction, which would make all texts alike.  One that
    is the centre, to rounding, keeps its own direction: so equal texts are alike without others.
    """
    moved = vectors - centre
    whole, lengths = (np.linalg.norm(each, axis=1, keepdims=True) for each in (vectors, moved))
    is_centre = lengths < _ROUNDING * whole
    moved, lengths = np.where(is_centre, vectors, moved), np.where(is_centre, whole, lengths)
    scaled: Floats = moved / np.maximum(lengths, 1e-12)
    return scaled


@dataclass(frozen=True)
class Groups:
    """Which texts are alike, (N,) each: the first text of a group, the most alike, and the cosine.

    A text that is like no other is its own, with a cosine of -1.
    """

    group: Indices
    nearest: Indices
    cosine: Floats


def group_alike(vectors: Floats, threshold: float, reporter: Reporter = SILENT) -> Groups:
    """Groups of ``directions`` (N, H) with a cosine of at least ``threshold``."""
    count = len(vectors)
    found = Groups(np.arange(count), np.arange(count), np.full(count, -1, dtype=np.float32))
    for start in range(0, count, _BLOCK):
        compare = partial(_compared, vectors, threshold, start)
        for pairs in map_on_threads(compare, range(start, count, _BLOCK)):
            _tie(found.group, pairs.first, pairs.second)
            for begin, nearest, cosines in pairs.best:
                part = slice(begin, begin + len(nearest))
                better = (cosines > found.cosine[part]) & (cosines >= threshold)
                found.nearest[part][better] = nearest[better]
                found.cosine[part][better] = cosines[better]
        reporter.advance(min(start + _BLOCK, count))
    return found


def duplicate_rows(examples: Sequence[TextExample], found: Groups) -> list[dict[str, Any]]:
    """A row of COLUMNS for each text that is alike to another, a group after the other."""
    order = np.lexsort((np.arange(len(examples)), found.group))
    sizes = np.bincount(found.group, minlength=len(examples))
    numbers: dict[int, int] = {}
    return [
        {
            "group": numbers.setdefault(int(found.group[at]), len(numbers) + 1),
            "row": examples[at].row,
            "text": examples[at].text,
            "nearest": examples[found.nearest[at]].row,
            "cosine": float(found.cosine[at]),
        }
        for at in order.tolist()
        if sizes[found.group[at]] > 1
    ]


@dataclass(frozen=True)
class _Pairs:
    """Two blocks compared: pairs that tie together all texts that are alike.

    ``best`` has for each block the number of its first text, then for each of its texts the nearest
    of the other block, and the cosine.
    """

    first: Indices
    second: Indices
    best: Sequence[tuple[int, Indices, Floats]]


def _compared(vectors: Floats, threshold: float, start: int, beside: int) -> _Pairs:
    blocks = [vectors[at : at + _BLOCK] for at in (start, beside)]
    cosines = product(*map(torch.from_numpy, blocks))
    if start == beside:
        cosines.fill_diagonal_(-2)
    alike = cosines >= threshold
    if not alike.any():
        return _Pairs(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), ())
    first, second = torch.nonzero(alike, as_tuple=True)
    # Many texts may be alike, and make a pair with each other: a text and its group are enough.
    numbers = np.concatenate(
        [at + np.arange(len(each)) for at, each in zip((start, beside), blocks, strict=True)]
    )
    parts = _components(first.numpy(), len(blocks[0]) + second.numpy(), len(numbers))
    _, at, of_text = np.unique(parts, return_index=True, return_inverse=True)
    best = []
    for begin, other, axis in ((start, beside, 1), (beside, start, 0)):
        largest = cosines.max(axis)
        best.append((begin, other + largest.indices.numpy(), largest.values.numpy()))
    return _Pairs(numbers, numbers[at[of_text]], best)


def _components(first: Indices, second: Indices, count: int) -> npt.NDArray[np.int32]:
    """(count,): the number of the component that each node belongs to."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    edges = np.ones(len(first), dtype=np.int8)
    graph = coo_array((edges, (first, second)), shape=(count, count))
    parts: npt.NDArray[np.int32] = connected_components(graph, directed=False)[1]
    return parts


def _tie(group: Indices, first: Indices, second: Indices) -> None:
    """Make one group of the groups of each pair; a group has the number of its first text."""
    ends = group[first], group[second]
    apart = ends[0] != ends[1]
    if not apart.any():
        return
    groups, numbers = np.unique(np.concatenate([each[apart] for each in ends]), return_inverse=True)
    first, second = np.split(numbers, 2)
    parts = _components(first, second, len(groups))
    least = np.full(parts.max() + 1, len(group))
    np.minimum.at(least, parts, groups)
    becomes = np.arange(len(group))
    becomes[groups] = least[parts]
    group[:] = becomes[group]
