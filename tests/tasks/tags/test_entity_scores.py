"""Scores of entities fitted on dev, thresholds by type, and what they give."""

from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.tasks.tags.test_tagging import NAMES, TOKENIZER, tagged

from tidybert.checkpoints.metadata import ModelMetadata
from tidybert.data.checks import TrainingData
from tidybert.errors import ConfigError, UsageError
from tidybert.metrics.calibration import ANSWERS_NONE, fewest_right, fewest_to_show
from tidybert.tasks.tags.entity_scores import (
    EntityScores,
    asked_shares,
    not_overlapping,
    score_of_precision,
    score_of_recall,
)
from tidybert.tasks.tags.tagging import TagAnswers, Tagging
from tidybert.tasks.task_options import TagOptions


def answers_of(task: Tagging, sentences: list[Any], sure: float = 3.0, seed: int = 0) -> TagAnswers:
    """Answers whose logits say each right tag with noise."""
    random = np.random.default_rng(seed)
    features = task.features(sentences, TOKENIZER, 32)
    task.add_labels(features, sentences)
    outputs = []
    for one in features:
        rows = random.normal(size=(len(one.input_ids), len(NAMES))).astype(np.float32) * 2
        for row, label in zip(one.place.rows.tolist(), one.label, strict=True):
            rows[row, label] += sure
        outputs.append(rows)
    return TagAnswers(task, outputs, features, sentences)


def sentences_of(count: int, seed: int) -> list[Any]:
    random = np.random.default_rng(seed)
    tags = ("O", "O", "B-x", "B-y I-y")
    words = ("a", "b", "c", "a d")
    drawn = random.integers(0, 4, (count, 4))
    return [
        tagged(" ".join(words[at] for at in one), " ".join(tags[at] for at in one), row)
        for row, one in enumerate(drawn, 1)
    ]


def test_the_bound_is_exact() -> None:
    for count, share in ((10, 0.5), (40, 0.9), (299, 0.99), (298, 0.99), (1000, 0.95)):
        chances = [comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(count + 1)]
        wanted = next((k for k in range(count + 1) if sum(chances[k:]) <= 0.05), count + 1)
        assert fewest_right(count, share) == wanted
    assert fewest_right(0, 0.9) == 1
    assert (fewest_to_show(0.99), fewest_to_show(0.95)) == (299, 59)


def test_scores_fit_what_is_right() -> None:
    random = np.random.default_rng(0)
    probabilities = random.random(20_000)
    odds = np.log(probabilities / (1 - probabilities))
    right = random.random(20_000) < 1 / (1 + np.exp(1 - 0.5 * odds))

    found = EntityScores.fit(probabilities, right, np.ones(20_000))

    assert found.slope == pytest.approx(0.5, abs=0.03)
    assert found.offset == pytest.approx(-1, abs=0.05)
    assert found.of(probabilities).mean() == pytest.approx(right.mean(), abs=0.005)
    none = np.empty(0)
    assert EntityScores.fit(none, none > 0, none) == EntityScores(1.0, 0.0)


def test_thresholds_of_recall_and_of_precision() -> None:
    scores = np.linspace(1, 0, 101)[:-1]
    needed = fewest_right(100, 0.9)
    assert score_of_recall(scores, 100, 0.9) == scores[needed - 1]
    assert score_of_recall(scores[: needed - 1], 100, 0.9) is None
    right = np.arange(100) < 80
    chosen = score_of_precision(scores, right, 0.9)
    kept = scores >= chosen
    assert right[kept].sum() >= fewest_right(int(kept.sum()), 0.9)
    assert chosen < scores[79]
    assert score_of_precision(scores, ~right, 0.9) == ANSWERS_NONE


def test_the_surest_of_entities_that_overlap_are_tags() -> None:
    places = [(0, 2), (1, 3), (3, 4), (0, 1)]
    assert not_overlapping(places, [0.5, 0.9, 0.2, 0.4]) == [3, 1, 2]


def test_a_fit_keeps_scores_and_thresholds_that_new_texts_reach(tmp_path: Path) -> None:
    train, dev, test = (sentences_of(400, seed) for seed in range(3))
    plain = Tagging.from_examples(train)
    asking = Tagging.from_examples(train, TagOptions(min_recall="0.95,y=0.9"))

    usual = plain.calibrated(answers_of(plain, dev))
    found = asking.calibrated(answers_of(asking, dev))

    assert usual.thresholds == {}
    assert set(found.thresholds) == {"x", "y"}
    best, more = (answers_of(task, test, seed=5) for task in (usual, found))
    for name, share in (("x", 0.95), ("y", 0.9)):
        each, other = (one.metrics()["per_label"][name] for one in (more, best))
        # A few hundred entities show no more than about that share.
        assert each["recall"] >= share - 0.02 > other["recall"]
        assert each["precision"] < other["precision"]
        assert each["threshold"] == found.thresholds[name]
    # The tags never overlap, and the entities of the usual answers are those of the tags.
    assert all(len(tags) == len(one.words) for tags, one in zip(more.tags, test, strict=True))
    written = ModelMetadata("tag", NAMES, settings=found.settings()).write(tmp_path)
    read = Tagging.from_metadata(written)
    again = answers_of(read, test, seed=5)
    assert again.found == more.found
    scores = [score for one in best.found for _, score in one]
    right = best.metrics()["precision"]
    assert np.mean(scores) == pytest.approx(right, abs=0.04)


def test_one_score_for_all_types_wins() -> None:
    task = Tagging.from_examples(sentences_of(50, 0))
    task = task.calibrated(answers_of(task, sentences_of(200, 1)))
    dev = sentences_of(40, 2)

    sure, any_score, usual = (
        answers_of(task.with_min_score(score), dev).found for score in (0.9, 0.01, 0)
    )

    assert usual == answers_of(task, dev).found
    assert sum(map(len, sure)) < sum(map(len, usual)) < sum(map(len, any_score))
    assert all(score >= 0.9 for one in sure for _, score in one)
    old = answers_of(Tagging(NAMES).with_min_score(0.9), dev).found
    assert all(score >= 0.9 for one in old for _, score in one)
    with pytest.raises(UsageError, match="min_score is for models that give one label"):
        Tagging(["NOUN", "VERB"]).with_min_score(0.5)


@pytest.mark.parametrize("given", ["x", "1", "0", "x=", "=0.5", "x=2", "0.9,", "nan"])
def test_a_share_that_is_none(given: str) -> None:
    with pytest.raises(UsageError, match=r"a share between 0 and 1, or shares by type, as PER="):
        TagOptions(min_recall=given)


def test_a_type_that_does_not_exist_and_a_dev_that_is_too_small() -> None:
    with pytest.raises(UsageError, match=r"'?z'?: no entity of the training data has this type"):
        asked_shares(TagOptions(min_recall="z=0.9"), ("x", "y"))
    with pytest.raises(UsageError, match="both choose a score for x"):
        asked_shares(TagOptions(min_recall=0.9, min_precision="x=0.8"), ("x", "y"))
    task = Tagging.from_examples(train := sentences_of(20, 0), TagOptions(min_recall="x=0.99"))
    report = task.check(TrainingData(train, None, task.features(train, TOKENIZER, 32), [], 32))
    (error,) = [each for each in report.errors if "min_recall" in each]
    assert "needs 299 entities of x in dev to know, and there are 0: give more with" in error
    assert asked_shares(TagOptions(min_recall="x=0.9", min_precision="y=0.8"), ("x", "y")) == {
        "x": ("min_recall", 0.9),
        "y": ("min_precision", 0.8),
    }


def test_settings_that_do_not_fit_the_tags() -> None:
    for settings in (
        {"thresholds": {"z": 0.5}},
        {"entity_scores": {"slope": 1.0}},
    ):
        with pytest.raises(ConfigError, match="do not fit its label_names"):
            Tagging.from_metadata(ModelMetadata("tag", NAMES, settings=settings))
