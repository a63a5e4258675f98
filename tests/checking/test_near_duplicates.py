"""Directions have length 1, from the centre."""

import numpy as np

from tidybert.checking.near_duplicates import directions


def test_directions_begin_at_the_centre() -> None:
    vectors = np.array([[4, 3], [4, 5], [4, 4]], dtype=np.float32)

    assert directions(vectors, vectors.mean(axis=0)).tolist() == [[0, -1], [0, 1], [0, 0]]
