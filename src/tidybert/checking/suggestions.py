"""Which texts to label next: those the probe is unsure of, and different from each other.

The margin of the two likeliest classes chooses candidates; greedy k-centre (Sener and Savarese
2018, Active Learning for Convolutional Neural Networks, algorithm 1) then takes, one after another,
the candidate that is the farthest from all that are taken.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

CANDIDATES: Final = 4
"""Candidates for each text that is asked for."""

Floats = npt.NDArray[np.float32]


def margins(probabilities: Floats) -> Floats:
    """(N,) how much likelier the likeliest of C classes is than the next; (N, C) are given."""
    top = np.partition(probabilities, -2, axis=1)[:, -2:]
    difference: Floats = top[:, 1] - top[:, 0]
    return difference


def suggested(probabilities: Floats, directions: Floats, count: int) -> list[int]:
    """Numbers of at most ``count`` texts to label, the most uncertain first, then by distance.

    probabilities: (N, C).  directions: (N, H) of length 1.
    """
    candidates = np.argsort(margins(probabilities), kind="stable")[: CANDIDATES * count]
    chosen: list[int] = []
    # The cosine of each candidate with the nearest one that is taken.
    cosines = np.full(len(candidates), -np.inf, dtype=np.float32)
    for _ in range(min(count, len(candidates))):
        at = int(cosines.argmin())
        chosen.append(int(candidates[at]))
        taken = directions[candidates[at]]
        cosines = np.maximum(cosines, directions[candidates] @ taken)
        cosines[at] = np.inf
    return chosen
