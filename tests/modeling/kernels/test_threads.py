"""Pieces of work on threads of their own."""

import os
import subprocess
import sys
from collections.abc import Callable
from threading import Barrier, Thread, get_ident

import pytest
import torch

from tidybert.modeling.kernels import threads
from tidybert.modeling.kernels.threads import map_on_threads, num_threads


@pytest.fixture
def four_threads(set_threads: Callable[[int], None]) -> None:
    set_threads(4)


@pytest.mark.usefixtures("four_threads")
def test_the_results_come_in_the_order_of_the_pieces() -> None:
    assert list(map_on_threads(lambda piece: piece * 2, range(100))) == list(range(0, 200, 2))


@pytest.mark.usefixtures("four_threads")
def test_as_many_work_at_once_as_there_are_threads_with_one_each() -> None:
    together = Barrier(4)

    def work(_piece: int) -> tuple[int, int]:
        together.wait(timeout=60)  # breaks unless four are here at once
        return get_ident(), torch.get_num_threads()

    found = list(map_on_threads(work, range(8)))

    assert len({worker for worker, _ in found}) == 4
    assert {threads for _, threads in found} == {1}


@pytest.mark.usefixtures("four_threads")
def test_fewer_pieces_share_the_threads_out() -> None:
    assert list(map_on_threads(lambda _piece: torch.get_num_threads(), range(2))) == [2, 2]


@pytest.mark.usefixtures("four_threads")
def test_one_piece_has_all_threads_and_no_worker() -> None:
    def work(_piece: int) -> tuple[int, int]:
        return get_ident(), torch.get_num_threads()

    assert list(map_on_threads(work, [0])) == [(get_ident(), 4)]


@pytest.mark.usefixtures("four_threads")
def test_threads_that_others_start_keep_their_number() -> None:
    seen = []
    for _ in map_on_threads(lambda piece: piece, range(4)):
        other = Thread(target=lambda: seen.append(torch.get_num_threads()))
        other.start()
        other.join()

    assert seen == [4] * 4
    assert torch.get_num_threads() == 4


@pytest.mark.usefixtures("four_threads")
def test_an_error_is_raised_and_the_rest_is_given_up() -> None:
    begun = []

    def work(piece: int) -> None:
        begun.append(piece)
        if piece == 0:
            raise ValueError("no such piece")

    with pytest.raises(ValueError, match="no such piece"):
        list(map_on_threads(work, range(100_000)))
    assert len(begun) < 100_000


@pytest.mark.usefixtures("four_threads")
def test_many_that_begin_at_once_leave_every_thread_its_number() -> None:
    seen = []

    def predict() -> None:
        list(map_on_threads(lambda piece: piece, range(4)))
        seen.append(num_threads())

    for _ in range(20):
        threads._process.__init__()  # as in a new process
        others = [Thread(target=predict) for _ in range(16)]
        for other in others:
            other.start()
        for other in others:
            other.join()

    assert seen == [4] * 320


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_says_that_its_threads_are_lost_and_goes_on() -> None:
    product = "torch.ones(400, 400) @ torch.ones(400, 400)"
    program = f"""
import os, warnings, torch
from tidybert.modeling.kernels import threads
from tidybert.modeling.kernels.threads import map_on_threads, num_threads
torch.set_num_threads(2)
list(map_on_threads(lambda piece: {product}, range(4)))
{product}
child = os.fork()
if not child:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        print(*{{float(each[0, 0]) for each in map_on_threads(lambda piece: {product}, range(4))}})
    print(torch.get_num_threads(), len(found), "spawn" in str(found[0].message), flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.split() == ["400.0", "1", "1", "True"]


def test_one_thread_works_in_its_own(set_threads: Callable[[int], None]) -> None:
    set_threads(1)

    assert set(map_on_threads(lambda _piece: get_ident(), range(5))) == {get_ident()}
