"""The loop on a toy objective: a line through streamed points."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tidybert.errors import DivergedError
from tidybert.training.loop import TrainingLoop
from tidybert.training.objective import LoopSettings, Objective, Work
from tidybert.training.run_identity import RunIdentity


class Line(Objective):
    """y = 3 x - 1 from 16 points a step, which follow from the step's number."""

    def __init__(self, *, rate: float = 0.3, ends_at: int = -1, losses: Sequence[float] = ()):
        model = nn.Linear(1, 1)
        nn.init.zeros_(model.weight)
        nn.init.zeros_(model.bias)
        optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.0, fused=True)
        settings = LoopSettings(num_steps=60, eval_steps=20, save_steps=20, max_grad_norm=1e9)
        super().__init__(model, optimizer, settings)
        self.rate, self.ends_at, self.losses = rate, ends_at, list(losses)

    def learning_rate(self, step: int) -> float:
        return self.rate

    def work(self, step: int, progress: Mapping[str, Any]) -> Work:
        if step == self.ends_at:
            raise KeyError("the power fails")
        return Work(torch.rand(16, 1, generator=torch.Generator().manual_seed(step)), 16)

    def add_gradients(self, work: Work, numbers: torch.Generator) -> Tensor:
        loss = functional.mse_loss(self.model(work.batches), 3 * work.batches - 1)
        loss.backward()
        return loss.detach().reshape(1)

    def evaluate(self) -> dict[str, Any] | None:
        return {"loss": self.losses.pop(0)} if self.losses else None


def loop_of(line: Line, run: Path | None = None) -> TrainingLoop[Line]:
    return TrainingLoop(line, run=run, identity=RunIdentity({}, {}))


def weights(line: Line) -> list[float]:
    return [line.model.weight.item(), line.model.bias.item()]


def test_a_toy_objective_learns() -> None:
    line = Line()

    result = loop_of(line).train()

    assert result.num_steps == 60
    assert weights(line) == pytest.approx([3, -1], abs=0.3)


def test_a_stopped_toy_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    whole, cut, resumed = Line(), Line(ends_at=47), Line()
    loop_of(whole).train()
    with pytest.raises(KeyError):
        loop_of(cut, tmp_path / "run").train()

    loop = loop_of(resumed, tmp_path / "run")
    loop.resume()

    assert loop.state.step == 40
    loop.train()
    assert weights(resumed) == weights(whole)


def test_the_best_weights_of_a_toy_stay() -> None:
    at_40, best = Line(ends_at=40), Line(losses=[0.5, 0.1, 0.3])
    with pytest.raises(KeyError):
        loop_of(at_40).train()

    result = loop_of(best).train()

    assert (result.best_step, result.metrics) == (40, {"loss": 0.1})
    assert weights(best) == weights(at_40)


def test_a_toy_that_diverges_stops_before_its_weights_do() -> None:
    line = Line(rate=1e30)

    with pytest.raises(DivergedError, match=r"at step \d+ of 60"):
        loop_of(line).train()

    assert all(map(math.isfinite, weights(line)))
