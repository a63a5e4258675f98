from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from tidybert.modeling.kernels.threads import ChosenThreads

QUIET = {1: 6e-3, 2: 4e-3}
BUSY = {1: 7e-3, 2: 15e-3}


class Machine:
    """Passes that take ``seconds`` by the number of their threads, on a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.seconds = QUIET
        self.used: list[int] = []
        self.threads = ChosenThreads(lambda: self.now)

    def work(self) -> Tensor:
        self.used.append(torch.get_num_threads())
        self.now += self.seconds[self.used[-1]]
        return torch.ones(2)

    def passes(self, count: int, size: int = 16) -> list[int]:
        """The threads of so many passes."""
        self.used.clear()
        for _ in range(count):
            self.threads.run(size, self.work)
        return list(self.used)


@pytest.fixture
def machine() -> Iterator[Machine]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield Machine()
    torch.set_num_threads(before)


def test_all_threads_are_taken_on_a_quiet_machine(machine: Machine) -> None:
    # The first pass is computed both ways.
    assert machine.passes(1) == [2, 1]
    assert machine.passes(1000) == [2] * 1000
    # A trial in eight seconds.
    assert machine.passes(4000).count(1) == 2


def test_one_pass_that_is_held_up_changes_nothing(machine: Machine) -> None:
    machine.passes(10)
    machine.seconds = {1: 6e-3, 2: 40e-3}
    machine.passes(1)
    machine.seconds = QUIET
    assert machine.passes(100) == [2] * 100


@pytest.mark.parametrize("from_the_start", [True, False])
def test_one_thread_is_taken_beside_a_busy_program(machine: Machine, from_the_start: bool) -> None:
    if not from_the_start:
        machine.passes(10)
    machine.seconds = BUSY

    used = machine.passes(3000)
    # All threads are tried a few times at first, and then every eight seconds.
    assert used.count(2) < 20
    assert used[1000:].count(2) <= 4

    machine.seconds = QUIET
    machine.now += 8
    # The first pass may be a trial.
    assert machine.passes(200)[1:] == [2] * 199


def test_other_bits_leave_no_choice(machine: Machine) -> None:
    def work() -> Tensor:
        machine.work()
        return torch.full((2,), float(torch.get_num_threads()))

    machine.seconds = BUSY
    found = [machine.threads.run(16, work) for _ in range(200)]

    assert machine.used == [2, 1] + [2] * 199
    assert all(torch.equal(each, torch.full((2,), 2.0)) for each in found)


def test_one_thread_has_nothing_to_choose(machine: Machine) -> None:
    torch.set_num_threads(1)
    assert machine.passes(3) == [1, 1, 1]
