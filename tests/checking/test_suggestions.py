"""Suggested texts are uncertain, and no two are alike."""

import numpy as np

from tidybert.checking.label_check import margins, suggested


def test_the_margin_is_between_the_two_likeliest() -> None:
    p = np.array([[0.5, 0.2, 0.3], [0.1, 0.1, 0.8]], dtype=np.float32)

    assert np.allclose(margins(p), [0.2, 0.7])


def test_the_most_uncertain_comes_first_and_copies_of_it_last() -> None:
    """Three copies of the closest call, one other text, and texts that are clear."""
    p = np.array([[0.5, 0.5], [0.51, 0.49], [0.52, 0.48], [0.55, 0.45], *[[0.99, 0.01]] * 8])
    angles = np.array([0.0, 0.01, 0.02, 2.0, *np.linspace(3, 4, 8)])
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)

    chosen = suggested(p.astype(np.float32), directions, 2)

    # Numbers 0 to 7 are the candidates, and 3 is not the farthest from 0.
    assert chosen[0] == 0
    assert chosen[1] in range(4, 8)
    assert suggested(p[:4].astype(np.float32), directions[:4], 9) == [0, 3, 2, 1]
