"""Which texts are asked next: random ones at their turns, one a topic, then the most uncertain."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from tidybert.finetuning.active_learning import (
    Drawn,
    Pool,
    class_probabilities,
    fit_classes,
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


def test_the_margin_is_between_the_two_likeliest() -> None:
    p = np.array([[0.5, 0.2, 0.3], [0.1, 0.1, 0.8]], dtype=np.float32)

    assert np.allclose(margins(p), [0.2, 0.7])


def test_one_a_topic_comes_first_and_then_the_most_uncertain() -> None:
    """Topic 1 is the largest; its middle text is 2.  A topic with a label is not asked again."""
    vectors = np.zeros((20, 1), dtype=np.float32)
    vectors[:5, 0] = [-2, -1, 0.1, 1, 2]
    topics = np.array([1, 1, 1, 1, 1, 0, 0, 2, *[-1] * 12])
    pool = Pool(vectors, seed=4, topics=topics)
    set_aside = {one.number for one in pool.next(unlabelled(20), ["chosen"] * 999, count=4)}
    assert not set_aside & {2, 5, 7}, "another seed is needed"
    sure = np.linspace(0.5, 0.95, 20)[::-1]
    p = np.stack([sure, 1 - sure], axis=1).astype(np.float32)

    asked = pool.next(unlabelled(20), (), p, count=4)
    labels = unlabelled(20)
    labels[[2, 6]] = 0
    later = pool.next(labels, ["chosen"] * 2, p, count=2)

    assert asked[0].number == 2
    assert {one.number for one in asked[:3]} >= {2, 7}
    assert later[0].number == 7
    assert later[1].number == max({*range(20)} - set_aside - {2, 6, 7})


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


def test_the_probe_finds_the_classes_as_a_logistic_regression() -> None:
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 400)
    vectors = np.eye(3)[labels] @ random.normal(size=(3, 8)) + random.normal(size=(400, 8)) / 2
    vectors = vectors.astype(np.float32)

    p = class_probabilities(fit_classes(vectors[:200], labels[:200], 3), vectors[200:])

    theirs = LogisticRegression().fit(vectors[:200], labels[:200])
    assert p.sum(1) == pytest.approx(np.ones(200))
    assert (p.argmax(1) == labels[200:]).mean() > 0.9
    assert (p.argmax(1) == theirs.predict(vectors[200:])).mean() > 0.95
