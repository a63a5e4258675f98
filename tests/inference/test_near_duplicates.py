"""Directions have length 1, from the centre; groups are the components of the whole graph."""

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

from tidybert.files.text_examples import TextExample
from tidybert.inference import near_duplicates
from tidybert.inference.near_duplicates import directions, duplicate_rows, group_alike


def test_directions_begin_at_the_centre() -> None:
    vectors = np.array([[4, 3], [4, 5], [4, 4]], dtype=np.float32)

    assert directions(vectors, vectors.mean(axis=0)).tolist() == [
        [0, -1],
        [0, 1],
        # The centre itself has no direction from there.
        pytest.approx([2**-0.5, 2**-0.5]),
    ]


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8])
def test_equal_texts_alone_are_one_group(count: int) -> None:
    vectors = np.tile(np.array([[0.3, -0.7, 0.1]], dtype=np.float32), (count, 1))

    found = group_alike(directions(vectors, vectors.mean(axis=0)), 0.9)

    assert found.group.tolist() == [0] * count
    assert found.cosine.tolist() == pytest.approx([1.0] * count)


@pytest.mark.parametrize("threshold", [0.5, 0.8, 0.95, -1.0])
@pytest.mark.parametrize("block", [3, 7, 1024])
def test_groups_are_those_of_the_whole_graph(
    threshold: float, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(near_duplicates, "_BLOCK", block)
    random = np.random.default_rng(0)
    centres = random.normal(size=(12, 6))[random.integers(0, 12, 50)]
    vectors = (centres + 0.3 * random.normal(size=(50, 6))).astype(np.float32)
    vectors = directions(vectors, vectors.mean(axis=0))
    vectors[30] = vectors[4]

    found = group_alike(vectors, threshold)

    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -2)
    _, expected = connected_components(cosines >= threshold, directed=False)
    first = [int(np.flatnonzero(expected == each)[0]) for each in expected]
    assert found.group.tolist() == first
    best = cosines.max(axis=1)
    alone = best < threshold
    assert (found.nearest == np.where(alone, np.arange(50), cosines.argmax(axis=1))).all()
    assert np.allclose(found.cosine, np.where(alone, -1, best), atol=1e-6)


def test_rows_come_a_group_after_the_other() -> None:
    vectors = np.array([[1, 0], [0, 1], [1, 0], [0.6, 0.8]], dtype=np.float32)
    examples = [TextExample(text, None, None, row) for row, text in enumerate("abcd", start=2)]

    rows = duplicate_rows(examples, group_alike(vectors, 0.7))

    assert [tuple(row.values()) for row in rows] == [
        (1, 2, "a", 4, 1.0),
        (1, 4, "c", 2, 1.0),
        (2, 3, "b", 5, pytest.approx(0.8)),
        (2, 5, "d", 3, pytest.approx(0.8)),
    ]


def test_equal_texts_are_one_group_however_many() -> None:
    vectors = np.tile(np.array([[0.6, 0.8]], dtype=np.float32), (3000, 1))

    found = group_alike(vectors, 0.9)

    assert not found.group.any()
    assert (found.nearest != np.arange(3000)).all()
    assert np.allclose(found.cosine, 1)
