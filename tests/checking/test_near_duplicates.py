"""Blocks find the same neighbours as the whole product."""

import numpy as np
import pytest

from tidybert.checking import near_duplicates
from tidybert.checking.near_duplicates import directions, nearest


@pytest.mark.parametrize("of_classes", [False, True])
def test_blocks_find_what_the_whole_product_has(of_classes: bool, monkeypatch) -> None:
    monkeypatch.setattr(near_duplicates, "_BLOCK", 7)
    random = np.random.default_rng(0)
    rows, others = random.normal(size=(2, 30, 5)).astype(np.float32) + 3
    centre = rows.mean(axis=0)
    rows, others = directions(rows, centre), directions(others, centre)
    classes, other_classes = random.integers(0, 3, (2, 30))
    whole = rows @ others.T
    if of_classes:
        whole[classes[:, None] == other_classes] = -2
        found, cosines = nearest(rows, others, classes, other_classes)
    else:
        found, cosines = nearest(rows, others)

    assert (found == whole.argmax(1)).all()
    assert np.allclose(cosines, whole.max(1), atol=1e-6)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1)


def test_without_another_class_there_is_none() -> None:
    rows = np.eye(3, dtype=np.float32)
    same = np.zeros(3, dtype=np.int64)

    assert (nearest(rows, rows, same, same)[1] == -2).all()
