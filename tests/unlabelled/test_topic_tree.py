"""The tree is SciPy's, a cut of it has each text at the nearest middle, and clouds are counted."""

from typing import Any

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist

from tidybert.errors import DataError
from tidybert.unlabelled import topic_tree
from tidybert.unlabelled.topic_tree import TopicTree, neighbours


def clouds(count: int, each: int, spread: float = 0.15, seed: int = 0) -> Any:
    """Vectors around ``count`` directions, ``each`` of them, one cloud after the other."""
    random = np.random.default_rng(seed)
    middles = np.linalg.qr(random.normal(size=(16, 16)))[0][:count]
    vectors = np.repeat(middles, each, axis=0) + spread * random.normal(size=(count * each, 16))
    return vectors.astype(np.float32)


def partition(labels: Any) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(labels == one).tolist()) for one in np.unique(labels)}


@pytest.mark.parametrize("count", [2, 3, 7])
def test_clouds_are_counted_and_found(count: int) -> None:
    tree = TopicTree.of(clouds(count, 30))

    labels, middles, pairs = tree.cut(tree.number)

    assert tree.number == count
    assert partition(labels) == partition(np.repeat(np.arange(count), 30))
    assert middles.shape == (count, 16)
    assert len(pairs) == count - 1


def test_the_largest_topic_is_the_first() -> None:
    vectors = np.concatenate([clouds(3, 20), clouds(3, 20, seed=0)[20:40] + 0.01, clouds(3, 10)])

    labels, _, _ = TopicTree.of(vectors).cut(3)

    sizes = np.bincount(labels)
    assert sorted(sizes.tolist(), reverse=True) == sizes.tolist()


def test_parts_and_pairs_are_those_of_scipy() -> None:
    tree = TopicTree.of(np.random.default_rng(1).normal(size=(60, 8)).astype(np.float32))
    expected = linkage(pdist(tree.directions[tree.leaves].astype(np.float64)), "ward")

    for number in (2, 5, 20, 60):
        labels, pairs = tree.parts(number)
        assert partition(labels) == partition(fcluster(expected, number, "maxclust"))
        members = [{at} for at in range(number)]
        for one, other in pairs:
            members.append(members[one] | members[other])
        assert members[-1] == set(range(number))
        # Before the last of them, each pair is a part of the cut with one topic less.
        if number > 2:
            joined = np.isin(labels, sorted(members[number]))
            assert frozenset(np.flatnonzero(joined)) in partition(tree.parts(number - 1)[0])


def test_neighbours_are_the_nearest_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_tree, "_BLOCK", 7)
    tree = TopicTree.of(clouds(3, 20))
    cosines = tree.directions @ tree.directions.T
    np.fill_diagonal(cosines, -2)

    found = neighbours(tree.directions, 4)

    assert [{*row} for row in found] == [{*row} for row in np.argsort(-cosines)[:, :4]]


def test_a_text_that_is_repeated_counts_once() -> None:
    vectors = clouds(3, 30)
    alone = TopicTree.of(vectors)
    # A part of all vectors moves their mean; the copies are added around it in equal numbers.
    copies = np.tile(vectors, (4, 1))

    tree = TopicTree.of(copies)

    assert tree.leaves.tolist() == alone.leaves.tolist()
    assert tree.number == alone.number == 3
    assert partition(tree.cut(3)[0]) == partition(np.tile(alone.cut(3)[0], 4))


def test_texts_outside_of_the_tree_join_the_nearest_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_tree, "LARGEST_TREE", 60)
    vectors = clouds(4, 50)

    tree, again = TopicTree.of(vectors), TopicTree.of(vectors)

    assert len(tree.leaves) == 60
    assert tree.number == 4
    labels = tree.cut(4)[0]
    assert partition(labels) == partition(np.repeat(np.arange(4), 50))
    assert labels.tobytes() == again.cut(4)[0].tobytes()


def test_each_text_is_in_the_topic_with_the_nearest_middle() -> None:
    tree = TopicTree.of(np.random.default_rng(2).normal(size=(80, 6)).astype(np.float32))

    for number in (2, 9, len(tree.leaves)):
        labels, middles, _ = tree.cut(number)
        assert labels.tolist() == (tree.directions @ middles.T).argmax(axis=1).tolist()
        assert np.allclose(np.linalg.norm(middles, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("vectors", [clouds(1, 19), np.repeat(clouds(1, 1), 500, axis=0)])
def test_too_few_different_texts_are_a_sentence(vectors: Any) -> None:
    with pytest.raises(DataError, match=r"texts(, of which 1 differ)?: topics need 20"):
        TopicTree.of(vectors)
