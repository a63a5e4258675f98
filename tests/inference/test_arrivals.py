"""Arrivals: what is there is given, in order and in bounds, and nothing waits for ever."""

import io
import sys
import threading
from collections.abc import Iterator
from itertools import count

import pytest

from tidybert.errors import DataError
from tidybert.inference.forward import Arrivals, as_it_comes, in_chunks

PATIENCE = 30.0


def test_what_is_there_does_not_wait_for_more() -> None:
    answered = threading.Semaphore(0)

    def talk() -> Iterator[int]:
        for number in range(40):
            yield number
            # The next one comes only after the answer.
            assert answered.acquire(timeout=PATIENCE), f"{number} is not answered"

    seen = []
    with Arrivals(talk()) as arrivals:
        for chunk in in_chunks(arrivals):
            seen += chunk
            answered.release()

    assert seen == list(range(40))


def test_what_waits_is_taken_together_and_no_more_is_read_than_may_wait() -> None:
    read = 0
    is_full = threading.Event()

    def items() -> Iterator[int]:
        nonlocal read
        for read in range(100):
            if read == 10:
                is_full.set()
            yield read

    with Arrivals(items(), most_ahead=10) as arrivals:
        # The eleventh has been read, and does not fit.
        assert is_full.wait(PATIENCE)
        assert arrivals.take(4) == [0, 1, 2, 3]
        assert next(arrivals) == 4
        assert read <= 4 + 10 + 1
        assert list(arrivals) == list(range(5, 100))
        assert arrivals.take(4) == []


def test_chunks_are_no_longer_than_those_of_a_list() -> None:
    with Arrivals(range(3000)) as arrivals:
        chunks = list(in_chunks(arrivals, largest=64))

    assert [each for chunk in chunks for each in chunk] == list(range(3000))
    assert all(len(chunk) <= min(2**at, 64) for at, chunk in enumerate(chunks))


def test_an_error_is_raised_after_what_came_before_it() -> None:
    def items() -> Iterator[int]:
        yield from range(3)
        raise DataError("-:4: no text")

    with Arrivals(items()) as arrivals:
        assert [next(arrivals) for _ in range(3)] == [0, 1, 2]
        for _ in range(2):
            with pytest.raises(DataError, match="-:4: no text"):
                arrivals.take(64)


@pytest.mark.parametrize("most_ahead", [1, 1000])
def test_leaving_ends_the_thread(most_ahead: int) -> None:
    before = set(threading.enumerate())
    with Arrivals(count(), most_ahead) as arrivals:
        assert arrivals.take(1) == [0]
        (thread,) = set(threading.enumerate()) - before

    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_of_a_file_nothing_is_read_ahead() -> None:
    numbers = iter(range(3))
    with as_it_comes(numbers, "texts.txt") as coming:
        assert coming is numbers


def test_standard_input_is_let_go_only_where_a_thread_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(b"red\n"))
    monkeypatch.setattr(sys, "stdin", stdin)
    with as_it_comes(iter([1, 2]), "-") as coming:
        assert list(coming) == [1, 2]
    assert stdin.read() == "red\n"

    go_on = threading.Event()
    with as_it_comes(iter(go_on.wait, None), "-"):
        pass
    go_on.set()
    with pytest.raises(ValueError, match="detached"):
        stdin.read()
