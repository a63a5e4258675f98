"""Near-duplicates: texts whose vectors point in almost the same direction.

The products are computed in blocks, so memory grows with the number of texts and not with its
square.  N texts, M others, H width.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int64]

_BLOCK: Final = 1024


def directions(vectors: Floats, centre: Floats) -> Floats:
    """(N, H) the vectors from ``centre`` (H,), scaled to length 1.

    Vectors of many encoders share one large direction, which would make all texts alike.
    """
    moved = vectors - centre
    lengths = np.linalg.norm(moved, axis=1, keepdims=True)
    scaled: Floats = moved / np.maximum(lengths, 1e-12)
    return scaled


def nearest(
    rows: Floats,
    others: Floats,
    classes: Indices | None = None,
    other_classes: Indices | None = None,
) -> tuple[Indices, Floats]:
    """For each of ``rows`` (N, H) the nearest of ``others`` (M, H), and their cosine; (N,) each.

    With classes, (N,) and (M,), only others of another class count; a cosine of -2 says that there
    are none.  Both must be ``directions``.
    """
    best = np.full(len(rows), -2.0, dtype=np.float32)
    found = np.zeros(len(rows), dtype=np.int64)
    for start in range(0, len(rows), _BLOCK):
        block = slice(start, start + _BLOCK)
        for first in range(0, len(others), _BLOCK):
            beside = slice(first, first + _BLOCK)
            cosines = rows[block] @ others[beside].T
            if classes is not None and other_classes is not None:
                cosines[classes[block][:, None] == other_classes[beside]] = -2.0
            at = cosines.argmax(axis=1)
            values = np.take_along_axis(cosines, at[:, None], axis=1)[:, 0]
            better = values > best[block]
            best[block][better] = values[better]
            found[block][better] = first + at[better]
    return found, best
