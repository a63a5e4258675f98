"""Writes beside the steps: in their order, and none after one that failed."""

from threading import Event

import pytest

from tidybert.training.runs.run_record import BackgroundWriter


def test_writes_keep_their_order() -> None:
    done: list[int] = []
    writer = BackgroundWriter()
    for number in range(5):
        writer.start(lambda number=number: done.append(number))  # type: ignore[misc]

    writer.close()

    assert done == [0, 1, 2, 3, 4]


def test_what_follows_a_write_that_failed_is_not_written() -> None:
    begun, done = Event(), []

    def fail() -> None:
        begun.wait(60)
        raise OSError("no space left")

    writer = BackgroundWriter()
    writer.start(fail)
    writer.start(lambda: done.append("relies on the first"))
    begun.set()

    with pytest.raises(OSError, match="no space left"):
        writer.wait()
    with pytest.raises(OSError, match="no space left"):
        writer.close()
    assert done == []
