"""Which texts are asked next: random ones at their turns, one a topic, then the most uncertain."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidybert.finetuning.active_learning import (
    Drawn,
    Pool,
    margins,
    num_random,
)


def vectors_of(count: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(count, 4)).astype(np.float32)


def unlabelled(count: int) -> np.ndarray:
    return np.full(count, -1, dtype=np.int64)


def test_every_fifth_is_random_until_there_are_30_then_every_tenth() -> None:
    assert [num_random(n) for n in (0, 4, 5, 9, 10, 149, 150, 159, 160, 3000)] == [
        0, 0, 1, 1, 2, 29, 30, 30, 31, 315,
    ]  # fmt: skip

    drawn = [one.drawn for one in Pool(vectors_of(400)).next(unlabelled(400), (), count=180)]

    places = [at for at, each in enumerate(drawn, 1) if each == "random"]
    assert places == [*range(5, 151, 5), 160, 170, 180]


def test_all_texts_can_be_drawn_at_random() -> None:
    pool = Pool(vectors_of(200), at_random=True)
    asked = pool.next(unlabelled(200), ("chosen",), count=200)

    assert {one.drawn for one in asked} == {"random"}
    assert sorted(one.number for one in asked) == [*range(200)]
    # Typical and unsure texts do not come first.
    first = Pool(np.zeros((200, 1), dtype=np.float32), at_random=True).next(unlabelled(200), ())
    assert asked[0] == first[0]


def test_the_margin_is_between_the_two_likeliest() -> None:
    p = np.array([[0.5, 0.2, 0.3], [0.1, 0.1, 0.8]], dtype=np.float32)

    assert np.allclose(margins(p), [0.2, 0.7])


def clusters_of(sizes: list[int], spread: float = 0.1) -> np.ndarray:
    """Vectors around as many directions as there are sizes."""
    random = np.random.default_rng(2)
    middles = np.repeat(10 * np.eye(len(sizes), dtype=np.float32), sizes, axis=0)
    return middles + spread * random.normal(size=middles.shape).astype(np.float32)


def test_one_a_cluster_comes_first_the_largest_first() -> None:
    """30 clusters of 8 and one of 40: each is asked once before any is asked a second time."""
    sizes = [8] * 29 + [40]
    cluster = np.repeat(np.arange(30), sizes)
    pool = Pool(clusters_of(sizes))

    asked = pool.next(unlabelled(len(cluster)), ["chosen"] * 4, count=1)
    asked += pool.next(unlabelled(len(cluster)), (), count=30)

    chosen = [one.number for one in asked[1:] if one.drawn == "chosen"]
    assert cluster[chosen[0]] == 29
    assert len({*cluster[chosen].tolist()}) == len(chosen) == 24


def test_from_two_labels_a_class_on_the_probe_chooses() -> None:
    pool, labels = Pool(vectors_of(200)), unlabelled(200)
    labels[:30] = np.arange(30) % 15
    p = np.random.default_rng(0).dirichlet([1, 1], 200).astype(np.float32)
    unsure = [at for at in np.argsort(margins(p)).tolist() if at >= 30 and not pool.is_kept[at]]

    assert pool.next(labels, ["chosen"], p)[0].number == unsure[0]

    labels[:30] = np.arange(30) % 16
    assert pool.next(labels, ["chosen"], p)[0].number == pool.next(labels, ["chosen"])[0].number


def test_vectors_that_are_all_zero_are_asked_in_a_random_order() -> None:
    found = Pool(np.zeros((9, 1), dtype=np.float32)).next(unlabelled(9), (), count=9)

    assert sorted(one.number for one in found) == list(range(9))


@given(st.integers(1, 60), st.integers(0, 5), st.integers(1, 7), st.data())
def test_each_text_is_asked_once_and_random_ones_are_a_sample_fixed_from_the_start(
    count: int, seed: int, step: int, data: st.DataObject
) -> None:
    """Whatever the probe says, the random ones are the same, and in the same order."""
    pool, labels = Pool(vectors_of(count), seed), unlabelled(count)
    drawn: list[Drawn] = []
    numbers: list[int] = []
    while True:
        p = np.random.default_rng(data.draw(st.integers(0, 9))).dirichlet([1, 1], count)
        found = pool.next(labels, drawn, p.astype(np.float32), step)
        if not found:
            break
        numbers += [one.number for one in found]
        drawn += [one.drawn for one in found]
        labels[numbers] = 0
    assert sorted(numbers) == list(range(count))
    expected = np.random.default_rng(seed).permutation(count)[: num_random(count)]
    assert [at for at, how in zip(numbers, drawn, strict=True) if how == "random"] == [*expected]


def test_texts_that_were_passed_over_are_not_asked() -> None:
    pool = Pool(vectors_of(12))

    found = pool.next(unlabelled(12), (), count=99, passed=[3, 7])

    assert sorted(one.number for one in found) == [0, 1, 2, 4, 5, 6, 8, 9, 10, 11]
    assert found == Pool(vectors_of(12)).next(unlabelled(12), (), count=99, passed=[3, 7])
