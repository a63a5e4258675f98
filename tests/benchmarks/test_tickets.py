"""Three ways to classify the tickets."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_side_is_scored(script: Callable[[str], ModuleType], tiny_model: Path) -> None:
    tickets = script("tickets")
    counted, vectors, bert = tickets.sides(tiny_model).values()
    vectors.set_params(bertvectorizer__max_seq_length=8)
    bert.set_params(max_seq_length=8, max_steps=1)

    assert tickets.accuracy_of(counted) > 0.7
    for side in (vectors, bert):
        assert 0 < tickets.accuracy_of(side, 30) < 1
