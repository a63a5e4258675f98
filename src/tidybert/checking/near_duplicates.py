"""Near-duplicates: texts whose vectors point in almost the same direction.  N texts, H width."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


def directions(vectors: Floats, centre: Floats) -> Floats:
    """(N, H) the vectors from ``centre`` (H,), scaled to length 1.

    Vectors of many encoders share one large direction, which would make all texts alike.
    """
    moved = vectors - centre
    lengths = np.linalg.norm(moved, axis=1, keepdims=True)
    scaled: Floats = moved / np.maximum(lengths, 1e-12)
    return scaled
