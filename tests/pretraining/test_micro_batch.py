"""The search for the largest micro-batch, with a device that stands for one of little memory."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tidybert.errors import TrainingError
from tidybert.pretraining.micro_batch import largest_micro_batch
from tidybert.training.distributed import Processes


@dataclass(frozen=True)
class FakePart:
    total: Tensor
    correct: Tensor


class Device:
    """Runs out of memory above ``limit`` tokens, in the forward or, as a flag says, backward."""

    def __init__(self, limit: int, *, in_backward: bool = False) -> None:
        self.limit = limit
        self.in_backward = in_backward
        self.tried: list[int] = []
        self.model = nn.Linear(3, 2)

    def make_batch(self, tokens: int) -> Tensor:
        self.tried.append(tokens)
        return torch.ones(tokens, 3)

    def check(self, tokens: int) -> None:
        if tokens > self.limit:
            raise torch.cuda.OutOfMemoryError("out of memory")

    def loss(self, model: nn.Module, batch: Tensor) -> dict[str, FakePart]:
        if not self.in_backward:
            self.check(len(batch))
        total = model(batch).sum()
        total.register_hook(lambda _gradient: self.check(len(batch)))
        return {"mlm": FakePart(total, torch.zeros(()))}

    def search(self, **changes: Any) -> int:
        given = {"start": 1000, "least": 100, "most": 100_000, "processes": Processes(), **changes}
        return largest_micro_batch(self.model, self.loss, self.make_batch, mixed=False, **given)


@pytest.mark.parametrize("in_backward", [False, True])
@pytest.mark.parametrize(
    ("limit", "found"),
    # A quarter more than the answer must fit: 1,250 for 1,000.
    [(1250, 1000), (2499, 1000), (2500, 2000), (11_000, 8000), (1249, 500), (160, 125), (130, 100)],
)
def test_the_largest_of_halves_and_doubles_that_fits(
    limit: int, found: int, in_backward: bool
) -> None:
    device = Device(limit, in_backward=in_backward)

    assert device.search() == found

    assert int(1.25 * found) in device.tried
    assert int(1.25 * found) <= limit
    assert all(each.grad is None for each in device.model.parameters())


def test_no_more_is_tried_than_a_step_has() -> None:
    device = Device(10**9)

    assert device.search(most=3000) == 3000
    assert device.tried == [1250, 2500, 3750]


def test_a_start_above_what_a_step_has_begins_there() -> None:
    device = Device(10**9)

    assert device.search(start=5000, most=300) == 300
    assert device.tried == [375]


def test_too_little_for_anything_is_said() -> None:
    with pytest.raises(TrainingError, match=r"too small for 100 tokens .* checkpoint_activations"):
        Device(124).search()


class OfTwo(Processes):
    """This process beside another one, which found 500."""

    def least(self, value: int, device: torch.device) -> int:
        return min(value, 500)


def test_all_processes_take_the_smallest() -> None:
    assert Device(10_000).search(processes=OfTwo(0, 2)) == 500
