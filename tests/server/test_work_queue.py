"""The queue: bounded, in turn among clients, and batches of one lane by tokens."""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tidybert.data.features import Features
from tidybert.server.answers import Refusal
from tidybert.server.work_queue import SLICE, Job, WorkQueue, slices


class Lane:
    def run(self, features: Sequence[Features]) -> list[Any]:
        raise AssertionError("nothing computes here")


LANE, OTHER = Lane(), Lane()


def job(client: str, count: int, tokens: int = 10, lane: Lane = LANE) -> Job:
    made = [
        Features(np.zeros(tokens, np.int32), np.zeros(tokens, np.uint8), tokens)
        for _ in range(count)
    ]
    return Job(lane, client, made, lambda: None)


def queue(**given: int) -> WorkQueue:
    settings = {"max_tokens": 1000, "max_inputs": 100, "batch_tokens": 100, "num_threads": 1}
    return WorkQueue(**{**settings, **given})


def taken(found: WorkQueue) -> list[tuple[str, int]]:
    batch = found.take()
    assert batch is not None
    found.done(batch.tokens, 0.1)
    return [(each.job.client, each.number) for each in batch.pieces]


def test_clients_take_turns_and_each_is_served_in_order() -> None:
    found = queue(batch_tokens=40)
    found.put(job("long", 6))
    found.put(job("short", 1))
    found.put(job("other", 2))

    assert taken(found) == [("long", 0), ("short", 0), ("other", 0), ("long", 1)]
    assert taken(found) == [("other", 1), ("long", 2), ("long", 3), ("long", 4)]
    assert taken(found) == [("long", 5)]
    assert (found.tokens, found.inputs) == (0, 0)


def test_a_batch_has_one_lane_and_the_other_comes_next() -> None:
    found = queue()
    found.put(job("a", 1))
    found.put(job("b", 2, lane=OTHER))
    found.put(job("c", 1))

    assert taken(found) == [("a", 0), ("c", 0)]
    assert taken(found) == [("b", 0), ("b", 1)]


def test_a_long_input_is_a_batch_of_its_own_and_is_not_passed_over_for_ever() -> None:
    found = queue(batch_tokens=100)
    found.put(job("short", 12))
    found.put(job("long", 1, tokens=500))

    assert taken(found) == [("short", number) for number in range(10)]
    assert taken(found) == [("long", 0)]
    assert taken(found) == [("short", 10), ("short", 11)]


def test_threads_share_what_waits() -> None:
    found = queue(num_threads=2, batch_tokens=10_000, max_tokens=10**6)
    found.put(job("a", 100))

    first = found.take()
    second = found.take()

    assert first is not None
    assert second is not None
    assert (first.tokens, second.tokens) == (500, 250)
    assert (first.is_alone, second.is_alone) == (False, False)


def test_a_full_queue_refuses_whoever_has_a_share_of_it() -> None:
    found = queue(max_inputs=10)
    found.admit("greedy")
    found.put(job("greedy", 12))
    with pytest.raises(Refusal) as caught:
        found.admit("greedy")
    found.admit("modest")
    found.put(job("modest", 5))
    with pytest.raises(Refusal):
        found.admit("modest")

    assert (caught.value.status, caught.value.retry_after) == (429, 1)


def test_retry_after_follows_from_the_measured_rate() -> None:
    found = queue(max_tokens=1000)
    found.put(job("a", 10))
    taken(found)  # 100 tokens in 0.1 seconds
    found.put(job("a", 30, tokens=100))

    with pytest.raises(Refusal) as caught:
        found.admit("a")

    assert caught.value.retry_after == 3

    # A newer measurement counts a tenth: 0.9 × 1,000 + 0.1 × 21,000 tokens a second.
    found.done(2100, 0.1)
    found.put(job("a", 30, tokens=100))
    with pytest.raises(Refusal) as caught:
        found.admit("a")
    assert caught.value.retry_after == 2


def test_removed_work_leaves_nothing_behind() -> None:
    found = queue()
    gone, kept = job("a", 5), job("a", 1)
    found.put(gone)
    found.put(kept)
    found.remove(gone)
    assert (found.inputs, found.tokens) == (1, 10)
    assert taken(found) == [("a", 0)]
    found.remove(kept)
    assert (found.inputs, found.tokens) == (0, 0)


def test_a_closed_queue_is_emptied_first() -> None:
    found = queue()
    ends: list[Any] = []
    found.put(job("a", 1))
    found.close()

    assert taken(found) == [("a", 0)]
    waiting = threading.Thread(target=lambda: ends.append(found.take()))
    waiting.start()
    waiting.join(5)
    assert ends == [None]


def test_a_job_ends_once() -> None:
    ends: list[int] = []
    one = job("a", 2)
    one.finish = lambda: ends.append(1)
    one.give(1, np.ones((1, 1), np.float32))
    assert not ends
    one.fail(ValueError("first"))
    one.fail(ValueError("second"))
    one.give(0, np.ones((1, 1), np.float32))

    assert len(ends) == 1
    assert str(one.error) == "first"


def test_a_lone_input_waits_for_no_company(monkeypatch: pytest.MonkeyPatch) -> None:
    found = queue(num_threads=2)
    monkeypatch.setattr(found._ready, "wait", lambda *_given: pytest.fail("it waited"))
    found.put(job("a", 1))

    batch = found.take()

    assert batch is not None
    assert len(batch.pieces) == 1
    assert batch.is_alone


def test_batches_form_of_what_came_while_the_threads_were_busy() -> None:
    found = queue()
    found.put(job("a", 1))
    first = found.take()
    for client in "bcd":
        found.put(job(client, 1))

    second = found.take()

    assert first is not None
    assert second is not None
    assert [each.job.client for each in first.pieces] == ["a"]
    assert [each.job.client for each in second.pieces] == ["b", "c", "d"]


def test_slices_hold_few_inputs_and_few_characters() -> None:
    inputs = range(2 * SLICE + 1)
    assert [*map(len, slices(inputs, [1] * len(inputs)))] == [SLICE, SLICE, 1]
    assert slices("abcd", [65_535, 1, 1, 70_000]) == ["ab", "c", "d"]
    assert slices([], []) == []
