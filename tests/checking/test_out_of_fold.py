"""Folds that keep equal texts together, and probabilities from the other folds alone."""

import numpy as np

from tidybert.checking import label_check as folds
from tidybert.data.features import Features
from tidybert.system.reporter import Reporter
from tidybert.tasks.classification import Classification


def test_equal_texts_share_a_fold_and_classes_are_spread() -> None:
    labels = np.arange(100) % 2
    numbers = folds.fold_numbers([f"text {at % 90}" for at in range(100)], labels)

    assert (numbers[:10] == numbers[90:]).all()
    for label in (0, 1):
        counts = np.bincount(numbers[:90][labels[:90] == label], minlength=folds.FOLDS)
        assert set(counts.tolist()) == {9}
    assert (numbers == folds.fold_numbers([f"text {at % 90}" for at in range(100)], labels)).all()


def test_an_example_does_not_vote_for_its_own_label() -> None:
    """One example in a corner of its own: a probe that knew it would give its class."""
    random = np.random.default_rng(0)
    labels = np.arange(60) % 2
    vectors = random.normal(size=(60, 8)).astype(np.float32)
    vectors[:, 0] += 4 * labels
    wrong = labels.copy()
    wrong[7] = 1 - wrong[7]
    features = [
        Features(np.array([1]), np.array([0]), 1, example=at, label=int(label))
        for at, label in enumerate(wrong)
    ]
    done: list[int] = []

    p = folds.out_of_fold(
        Classification(["no", "yes"]),
        vectors,
        features,
        folds.fold_numbers(range(60), wrong),
        Reporter(advance=done.append),
    )

    assert p.shape == (60, 2)
    assert np.allclose(p.sum(1), 1)
    assert p[np.arange(60), wrong].argmin() == 7
    assert ((p.argmax(1) == labels).mean()) > 0.9
    assert done[-1] == 60


def test_a_probe_is_fitted_to_a_bounded_sample(monkeypatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(folds, "MOST_FITTED", 10)
    monkeypatch.setattr(folds, "fit_probe", lambda states, *_: seen.append(len(states)))
    features = [Features(np.array([1]), np.array([0]), 1) for _ in range(40)]

    folds.fitted(
        Classification(["no", "yes"]), np.zeros((40, 2), np.float32), features, np.arange(30)
    )

    assert seen == [10]


def test_two_different_texts_are_never_in_one_fold_whatever_their_classes() -> None:
    # The copies of one text have the first five classes, the other text has the sixth.
    assert len(set(folds.fold_numbers([*"aaaaab"], np.arange(6)).tolist())) == 2
