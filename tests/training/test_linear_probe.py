"""The probe is what scikit-learn's regressions find, by the task's own loss."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge

from tidybert.data.batching import Batch
from tidybert.data.features import NO_EXAMPLE, Features
from tidybert.tasks.classification import Classification
from tidybert.tasks.regression import Regression
from tidybert.training.linear_probe import PENALTIES, fit_probe, outputs_without

States = npt.NDArray[np.float32]


def features_of(labels: npt.NDArray[np.generic], weights: object = None) -> list[Features]:
    ones = np.ones(len(labels)) if weights is None else np.asarray(weights)
    empty = np.zeros(1, np.int32), np.zeros(1, np.uint8)
    return [
        Features(*empty, 1, example=number, label=label, weight=weight)
        for number, (label, weight) in enumerate(zip(labels.tolist(), ones.tolist(), strict=True))
    ]


def standardised(states: States) -> States:
    """As the probe does: a state that hardly varies stays small."""
    least = 0.1 * np.sqrt(np.square(states).mean())
    scaled: States = (states - states.mean(0)) / np.maximum(states.std(0), least)
    return scaled


@pytest.fixture
def states() -> States:
    """(300, 6), each place on a scale of its own; the first hardly varies."""
    random = np.random.default_rng(0)
    scales = np.array([1e-3, 0.3, 0.5, 1.0, 2.0, 3.0])
    drawn = random.normal(size=(300, 6)) * scales + np.arange(6)
    return drawn.astype(np.float32)


def test_classes_are_those_of_a_logistic_regression(states: States) -> None:
    random = np.random.default_rng(1)
    standard = (states - states.mean(0)) / states.std(0)
    noisy = standard @ random.normal(size=(6, 3)) + random.normal(size=(300, 3))
    labels, weights = noisy.argmax(1), random.uniform(0.2, 2.0, 300)

    task = Classification(["a", "b", "c"])
    probe = fit_probe(
        [row[None] for row in states], features_of(labels, weights), 3, task.summed_loss
    )

    scaled = standardised(states)
    theirs = LogisticRegression(C=1 / (probe.penalty * weights.sum()), max_iter=1000)
    theirs.fit(scaled, labels, sample_weight=weights)
    ours = probe.outputs(states)
    expected = theirs.decision_function(scaled)
    centred = ours - ours.mean(1, keepdims=True)
    assert np.abs(centred - expected).max() < 0.1 * np.abs(expected).max()
    assert probe.beats_chance
    assert probe.chance == pytest.approx(np.log(3), abs=0.1)


def test_scores_are_those_of_ridge_regression(states: States) -> None:
    random = np.random.default_rng(2)
    standard = (states - states.mean(0)) / states.std(0)
    scores = 3.0 + standard[:, 3:] @ np.array([1.0, -2.0, 0.5]) + 0.1 * random.normal(size=300)

    probe = fit_probe(
        [row[None] for row in states], features_of(scores), 1, Regression().summed_loss
    )

    scaled = standardised(states)
    theirs = Ridge(alpha=probe.penalty * 300 / 2).fit(scaled, scores)
    ours = probe.outputs(states)[:, 0]
    assert np.corrcoef(ours, theirs.predict(scaled))[0, 1] > 0.99
    assert probe.loss < probe.chance


def test_labels_that_follow_from_nothing_are_no_better_than_chance(states: States) -> None:
    labels = np.random.default_rng(3).integers(0, 2, 300)

    probe = fit_probe(
        [row[None] for row in states], features_of(labels), 2, Classification("ab").summed_loss
    )

    assert probe.loss > 0.97 * probe.chance


def test_the_penalty_is_one_of_those_given(states: States) -> None:
    labels = (states[:, 5] > 5).astype(np.int64)
    given = [row[None] for row in states], features_of(labels), 2, Classification("ab").summed_loss

    free, limited = fit_probe(*given), fit_probe(*given, penalties=PENALTIES[:3])

    assert free.penalty < limited.penalty == PENALTIES[2]
    assert free.loss < limited.loss < limited.chance
    assert free.weight.norm() > limited.weight.norm()


def test_what_is_no_example_is_fitted_to_and_never_held_out() -> None:
    """A text and a name of each of two classes: without the text its name tells the class."""
    states = np.array([[1.0, 0.0], [0.0, 1.0], [0.9, 0.1], [0.1, 0.9]], dtype=np.float32)
    texts = features_of(np.array([0, 1, 0, 1]))
    names = [replace(one, example=NO_EXAMPLE) for one in texts[2:]]

    probe = fit_probe(
        [row[None] for row in states], [*texts[:2], *names], 2, Classification("ab").summed_loss
    )

    # Without a text one name of three texts has its class.
    assert probe.chance == pytest.approx(np.log(3), abs=0.02)
    assert probe.loss < 0.1


def test_the_same_input_gives_the_same_bits(states: States) -> None:
    labels = (states[:, 5] > 5).astype(np.int64)

    probes = [
        fit_probe(
            [row[None] for row in states], features_of(labels), 2, Classification("ab").summed_loss
        )
        for _ in range(2)
    ]

    assert probes[0].weight.equal(probes[1].weight)
    assert probes[0].loss == probes[1].loss


def test_outputs_of_a_fold_are_those_of_a_layer_fitted_to_the_others(states: States) -> None:
    random = np.random.default_rng(4)
    scores = states[:, 3] + 0.1 * random.normal(size=300)
    folds = np.arange(300) % 3 - 1  # a third is always fitted

    found = outputs_without(
        folds, [row[None] for row in states], features_of(scores), 1, Regression().summed_loss, 0.01
    )

    scaled = standardised(states)
    for fold in (0, 1):
        others = folds != fold
        theirs = Ridge(alpha=0.01 * others.sum() / 2).fit(scaled[others], scores[others])
        ours = [float(rows[0, 0]) for rows, own in zip(found, ~others, strict=True) if own]
        expected = theirs.predict(scaled[~others])
        np.testing.assert_allclose(ours, expected, atol=0.05 * np.abs(expected).max())
    assert [len(rows) for rows in found] == [int(fold >= 0) for fold in folds]


def test_a_small_probe_has_the_same_bits_with_any_number_of_threads(states: States) -> None:
    seen: set[int] = set()
    labels = (states[:, 5] > 5).astype(np.int64)
    loss, before = Classification("ab").summed_loss, torch.get_num_threads()

    def watched(outputs: torch.Tensor, batch: Batch) -> torch.Tensor:
        seen.add(torch.get_num_threads())
        return loss(outputs, batch)

    probes = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            probes.append(fit_probe([row[None] for row in states], features_of(labels), 2, watched))
    finally:
        torch.set_num_threads(before)

    assert seen == {1}
    assert probes[0].weight.equal(probes[1].weight)
    assert probes[0].loss == probes[1].loss
