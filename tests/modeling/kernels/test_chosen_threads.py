from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from tidybert.modeling.kernels.chosen_threads import ChosenThreads


class Machine:
    """Passes that take ``seconds`` by the number of their threads, on a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.seconds = {1: 6e-3, 2: 4e-3}
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


def test_all_threads_are_taken_while_they_are_faster(machine: Machine) -> None:
    # The first pass is computed both ways.
    assert machine.passes(100) == [1] + [2] * 100
    # Then one pass in half a second tries one thread, and later ones after longer pauses.
    assert machine.passes(1000).count(1) == 3


def test_one_thread_is_taken_beside_a_busy_program_and_left_again(machine: Machine) -> None:
    machine.passes(10)
    machine.seconds = {1: 7e-3, 2: 15e-3}

    # The slow pass itself calls for a trial, half a second after the last one.
    busy = machine.passes(60)
    assert set(busy[-20:]) == {1}
    assert busy.index(1) < 40

    machine.seconds = {1: 6e-3, 2: 4e-3}
    # At most eight seconds later all threads are tried again.
    machine.now += 8
    assert machine.passes(5) == [2] * 5


def test_each_size_has_a_choice_of_its_own(machine: Machine) -> None:
    machine.passes(2)
    assert machine.passes(1, size=64) == [1, 2]


def test_other_bits_leave_no_choice(machine: Machine) -> None:
    def work() -> Tensor:
        machine.work()
        return torch.full((2,), float(torch.get_num_threads()))

    machine.seconds = {1: 1e-3, 2: 9e-3}
    found = [machine.threads.run(16, work) for _ in range(200)]

    assert machine.used == [1] + [2] * 200
    assert all(torch.equal(each, torch.full((2,), 2.0)) for each in found)


def test_one_thread_has_nothing_to_choose(machine: Machine) -> None:
    torch.set_num_threads(1)
    assert machine.passes(3) == [1, 1, 1]
