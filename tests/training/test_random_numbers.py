"""Random numbers beside other code that draws them too."""

import threading

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tidybert.modeling.kernels import dropout
from tidybert.training.determinism import DefaultDraws, weights_drawn_with


def test_new_weights_follow_from_the_seed_and_nothing_else_is_drawn() -> None:
    before = torch.get_rng_state()
    found = []
    for seed in (3, 3, 4):
        with weights_drawn_with(seed):
            found.append(nn.Linear(4, 4).weight)

    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert torch.equal(before, torch.get_rng_state())


def test_threads_draw_the_weights_of_their_own_seed() -> None:
    found: dict[int, Tensor] = {}

    def draw(seed: int) -> None:
        with weights_drawn_with(seed):
            found[seed] = torch.cat([nn.Linear(9, 9).weight for _ in range(50)])

    threads = [threading.Thread(target=draw, args=[seed]) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for seed, weights in found.items():
        with weights_drawn_with(seed):
            assert torch.equal(weights, torch.cat([nn.Linear(9, 9).weight for _ in range(50)]))


@pytest.mark.parametrize(
    ("draw", "expected"),
    [
        (lambda rows: functional.dropout(rows, 0.5), True),
        (lambda rows: rows + torch.randn(3), True),
        (lambda rows: dropout.dropout(rows, 0.5, True), False),
        (lambda rows: rows * 2, False),
    ],
)
def test_a_loss_that_draws_from_pytorchs_generator_is_noticed(draw, expected: bool) -> None:
    before = torch.get_rng_state()

    with dropout.drawing_from(torch.Generator()), DefaultDraws() as draws:
        draw(torch.ones(3))

    assert draws.found is expected
    assert expected or torch.equal(before, torch.get_rng_state())
