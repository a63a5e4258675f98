"""Contrastive training: its groups, its loss, and an encoder that tells classes apart after it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tidybert.data.features import Features
from tidybert.errors import UsageError
from tidybert.finetuning import head_start
from tidybert.finetuning.finetuned_model import FinetunedModel
from tidybert.finetuning.head_start import draw_groups, group_loss
from tidybert.system.reporter import Reporter
from tidybert.tasks.regression import Regression
from tidybert.training.linear_probe import PENALTIES, LinearProbe, fit_probe

Toy = Callable[..., FinetunedModel]


def text(number: int, label: int) -> Features:
    ids = np.array([2, 10 + number, 3], np.int32)
    return Features(ids, np.zeros(3, np.uint8), num_tokens=3, label=label)


def test_the_loss_of_a_group_is_that_of_its_pairs() -> None:
    states = torch.tensor([[1.0, 0.0], [3.0, 3.0], [0.0, 2.0]])

    found = group_loss(states, [7, 7, 8])

    cosine = 2**-0.5
    # One pair of a class, and the mean of two pairs of different classes.
    assert float(found) == pytest.approx((cosine - 1) ** 2 + (0 + cosine**2) / 2)
    assert float(group_loss(states[:1], [7])) == 0


def test_a_group_has_several_classes_with_several_texts_each() -> None:
    features = [text(number, number % 20) for number in range(60)] + [text(60, 20)]

    groups = draw_groups(features, seed=3)

    assert len(groups) == 80
    for one in groups:
        counts = np.unique(one.label, return_counts=True)[1]
        assert len(counts) == 8
        assert set(counts.tolist()) <= {1, 2}
        # The rows are those of the texts, in the order of the labels.
        assert [features[int(each) - 10].label for each in one.input_ids[1::3]] == one.label
    again, other = draw_groups(features, seed=3), draw_groups(features, seed=4)
    assert [one.label for one in again] == [one.label for one in groups]
    assert [one.label for one in other] != [one.label for one in groups]


def test_afterwards_a_probe_alone_answers_better(toy: Toy) -> None:
    """No step of fine-tuning follows: the encoder is the one that contrast left."""
    notes: list[str] = []

    before = toy(head_start="probe", num_train_epochs=0)
    after = toy(
        head_start="contrastive",
        num_train_epochs=0,
        learning_rate=0.01,
        reporter=Reporter(note=notes.append),
    )

    assert before.result.num_steps == after.result.num_steps == 0
    assert after.result.metrics["log_loss"] < before.result.metrics["log_loss"]
    assert after.result.metrics["accuracy"] > before.result.metrics["accuracy"]
    (told,) = (line for line in notes if "share a class" in line)
    assert "80 groups of up to 16: loss " in told
    words = after.model.state_dict()["bert.embeddings.word_embeddings.weight"]
    assert len(words) == after.config.vocab_size


def test_the_probe_afterwards_has_no_small_penalty(
    toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folds say nothing of new texts there, because the encoder has learned from them."""
    penalties = []

    def fitted(*given: Any) -> LinearProbe:
        penalties.append(fit_probe(*given).penalty)
        return fit_probe(*given)

    monkeypatch.setattr(head_start, "fit_probe", fitted)
    for start in ("probe", "contrastive"):
        toy(head_start=start, num_train_epochs=0, learning_rate=0.01)

    assert penalties[0] < min(PENALTIES[:3]) == penalties[-1]


def test_a_task_without_classes_is_refused(toy: Toy) -> None:
    with pytest.raises(UsageError, match=r"contrastive.* is for classify, not for regress"):
        toy(task=Regression(), head_start="contrastive")
