"""States of frozen layers, computed once: the same training, without the frozen half's work."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tidybert.data.batching import collate
from tidybert.training import fine_tuning as module
from tidybert.training.fine_tuning import FrozenStates
from tidybert.training.loop import TrainingLoop

MakeTrainer = Callable[..., TrainingLoop]


def states_of(trainer: TrainingLoop) -> FrozenStates:
    """The trainer's states, its model without dropout, as frozen layers are in a step."""
    trainer.objective.model.eval()
    assert trainer.objective.frozen_states is not None
    return trainer.objective.frozen_states


def weights_of(model: nn.Module) -> torch.Tensor:
    return torch.cat([each.detach().flatten() for each in model.parameters()])


def test_kept_states_are_those_of_the_encoder(
    make_trainer: MakeTrainer, make_features: Callable[..., Any]
) -> None:
    trainer = make_trainer(freeze_layers=1)
    model: Any = trainer.objective.model.eval()
    features = trainer.objective.features
    numbers = np.array([7, 0, 3])
    batch = collate([features[number] for number in numbers])

    lower_states = states_of(trainer).attach(batch, numbers).lower_states
    assert lower_states is not None

    with torch.no_grad():
        expected = model.bert(batch.rows, output_hidden_states=True).hidden_states[1]
        torch.testing.assert_close(lower_states.hidden_states, expected, atol=1e-5, rtol=1e-5)
        found = model(batch.rows, lower_states=lower_states)
        torch.testing.assert_close(found, model(batch.rows), atol=1e-5, rtol=1e-5)
    assert lower_states.num_layers == 1


@pytest.mark.parametrize("freeze_layers", [1, 2])
def test_training_is_the_same_as_with_states_computed_anew(
    freeze_layers: int, make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = make_trainer(freeze_layers=freeze_layers)
    kept.train()
    monkeypatch.setattr(module, "LARGEST_FILE", 0)
    anew = make_trainer(freeze_layers=freeze_layers)
    assert anew.objective.frozen_states is None
    anew.train()

    torch.testing.assert_close(
        weights_of(kept.objective.model), weights_of(anew.objective.model), atol=1e-5, rtol=1e-5
    )


def test_without_room_for_the_states_they_are_computed_anew(
    make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_file: int, _offset: int, size: int) -> None:
        assert size == 4 * 16 * sum(len(one.input_ids) for one in kept.objective.features)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    kept = make_trainer(freeze_layers=1)
    kept.train()
    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    notes: list[str] = []
    anew = make_trainer(freeze_layers=1, note=notes.append)
    anew.train()

    assert anew.objective.frozen_states is None
    assert len(notes) == 1
    assert "No space left on device" in notes[0]
    torch.testing.assert_close(
        weights_of(kept.objective.model), weights_of(anew.objective.model), atol=1e-5, rtol=1e-5
    )


def test_the_states_have_the_same_bits_in_any_order(make_trainer: MakeTrainer) -> None:
    first, second = (states_of(make_trainer(freeze_layers=1)) for _ in range(2))
    features = first.features

    def state(states: FrozenStates, numbers: list[int], wanted: int) -> torch.Tensor:
        batch = collate([features[number] for number in numbers])
        lower_states = states.attach(batch, np.array(numbers)).lower_states
        assert lower_states is not None
        start = sum(len(features[number].input_ids) for number in numbers[: numbers.index(wanted)])
        return lower_states.hidden_states[start : start + len(features[wanted].input_ids)]

    state(first, [9, 4, 1], wanted=4)

    assert torch.equal(state(first, [2, 1], wanted=2), state(second, [9, 2], wanted=2))


def test_frozen_layers_run_once_for_each_example(
    make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer(freeze_layers=1, num_train_epochs=3)
    states = states_of(trainer)
    computed: list[int] = []
    compute = states._compute
    monkeypatch.setattr(states, "_compute", lambda block: (computed.append(block), compute(block)))

    trainer.train()

    assert len(computed) == len(set(computed)) == len(states._blocks)


def test_nothing_is_kept_without_frozen_layers(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    assert make_trainer().objective.frozen_states is None
    assert make_trainer(freeze_embeddings=True).objective.frozen_states is None
