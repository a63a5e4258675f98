"""A bounded queue of inputs, fair among clients.

Inputs wait, and not requests: those of a long request and of short ones pass in turn.  Each client
has a line of its own, first in, first out; a batch takes one input of each client in turn.
"""

import math
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from tidybert.data.features import Features
from tidybert.server.faults import Refusal

Rows = npt.NDArray[np.float32]

# Batches of fewer tokens are not made to keep a thread busy.
_FEWEST_TOKENS: Final = 256
# The weight of the last batch in the rate.
_NEWS: Final = 0.1


class Lane(Protocol):
    """What inputs must have in common to share a batch: a model and its head."""

    def run(self, features: Sequence[Features]) -> list[Rows]:
        """The rows of each of the features."""


class Job:
    """The features of one request, and their outputs as they come.

    Args:
        lane: what computes them.
        client: who asked.
        features: n of them.
        finish: called once, from the thread that computes, when ``outputs`` is whole or ``error``
            is set.
    """

    def __init__(
        self, lane: Lane, client: str, features: Sequence[Features], finish: Callable[[], None]
    ) -> None:
        self.lane = lane
        self.client = client
        self.features = features
        self.finish = finish
        self.outputs: list[Any] = [None] * len(features)
        self.error: BaseException | None = None
        self.begun = monotonic()
        self._left = len(features)
        self._lock = threading.Lock()

    def give(self, number: int, rows: Rows) -> None:
        """Keep the rows of one of the features."""
        with self._lock:
            self.outputs[number] = rows
            self._left -= 1
            is_whole = self._left == 0 and self.error is None
        if is_whole:
            self.finish()

    def fail(self, error: BaseException) -> None:
        """End without outputs; only the first error counts."""
        with self._lock:
            is_first = self.error is None
            self.error = self.error or error
        if is_first:
            self.finish()


@dataclass(frozen=True, slots=True)
class Piece:
    """One of a job's features."""

    job: Job
    number: int
    tokens: int

    @property
    def features(self) -> Features:
        return self.job.features[self.number]


@dataclass(frozen=True, slots=True)
class Taken:
    """Pieces of one lane to compute at once; ``is_alone``: no other thread has work."""

    pieces: Sequence[Piece]
    tokens: int
    is_alone: bool


class WorkQueue:
    """Pieces that wait, by client.

    Args:
        max_tokens, max_inputs: once as many wait, ``admit`` refuses; a client with less than its
            share of them is let in still.
        batch_tokens: most tokens of a batch; a longer piece is a batch of its own.
        num_threads: how many threads take batches.
    """

    def __init__(
        self, max_tokens: int, max_inputs: int, batch_tokens: int, num_threads: int
    ) -> None:
        self._max_tokens, self._max_inputs = max_tokens, max_inputs
        self._batch_tokens, self._num_threads = batch_tokens, num_threads
        self._lines: OrderedDict[str, deque[Piece]] = OrderedDict()
        self._ready = threading.Condition()
        self._busy = 0
        self._is_closed = False
        #: What waits.
        self.tokens = self.inputs = 0
        #: Tokens a second of one thread; None before the first batch.
        self._rate: float | None = None

    def admit(self, client: str) -> None:
        """Raise Refusal 429 if the queue is full and the client has its share of it."""
        with self._ready:
            if self.tokens < self._max_tokens and self.inputs < self._max_inputs:
                return
            own = self._lines.get(client, ())
            among = len(self._lines) + (client not in self._lines)
            own_tokens = sum(each.tokens for each in own)
            if own_tokens < self._max_tokens / among and len(own) < self._max_inputs / among:
                return
        raise Refusal(
            429,
            f"the server is busy: {self.inputs:,} inputs wait; send it again later",
            retry_after=self.seconds_left(),
        )

    def seconds_left(self) -> int:
        """How long the work that waits will take, by the rate so far; 1 at least."""
        if self._rate is None:
            return 1
        return max(1, math.ceil(self.tokens / (self._rate * self._num_threads)))

    def put(self, job: Job) -> None:
        """Add all of a job's pieces to the end of its client's line."""
        pieces = [Piece(job, at, len(one.input_ids)) for at, one in enumerate(job.features)]
        with self._ready:
            self._lines.setdefault(job.client, deque()).extend(pieces)
            self.tokens += sum(each.tokens for each in pieces)
            self.inputs += len(pieces)
            self._ready.notify(len(pieces))

    def remove(self, job: Job) -> None:
        """Drop the pieces of a job that still wait: its client has left, or its time is over."""
        with self._ready:
            line = self._lines.get(job.client)
            if line is None:
                return
            kept = deque(each for each in line if each.job is not job)
            self.tokens -= sum(each.tokens for each in line) - sum(each.tokens for each in kept)
            self.inputs -= len(line) - len(kept)
            if kept:
                self._lines[job.client] = kept
            else:
                del self._lines[job.client]

    def take(self) -> Taken | None:
        """Wait for work and take a batch; None once the queue is closed and empty.

        Whoever takes a batch calls ``done`` after it.
        """
        with self._ready:
            while not self._lines:
                if self._is_closed:
                    return None
                self._ready.wait()
            share = math.ceil(self.tokens / self._num_threads)
            pieces = self._next(min(self._batch_tokens, max(_FEWEST_TOKENS, share)))
            tokens = sum(each.tokens for each in pieces)
            self.tokens -= tokens
            self.inputs -= len(pieces)
            self._busy += 1
            return Taken(pieces, tokens, self._busy == 1 and not self._lines)

    def done(self, tokens: int, seconds: float) -> None:
        """Count a batch that was taken."""
        with self._ready:
            self._busy -= 1
            rate = tokens / max(seconds, 1e-6)
            self._rate = rate if self._rate is None else (1 - _NEWS) * self._rate + _NEWS * rate

    def close(self) -> None:
        """Let threads end once the queue is empty."""
        with self._ready:
            self._is_closed = True
            self._ready.notify_all()

    def _next(self, room: int) -> list[Piece]:
        """One piece of each client in turn, of one lane, until ``room`` is used up."""
        lane = next(iter(self._lines.values()))[0].job.lane
        taken: list[Piece] = []
        waiting = list(self._lines)
        while waiting and room > 0:
            left = []
            for client in waiting:
                line = self._lines[client]
                if line[0].job.lane is not lane or (taken and line[0].tokens > room):
                    continue
                piece = line.popleft()
                taken.append(piece)
                room -= piece.tokens
                if line:
                    # Whoever was served goes to the end; whoever did not fit comes first next time.
                    self._lines.move_to_end(client)
                    left.append(client)
                else:
                    del self._lines[client]
                if room <= 0:
                    break
            waiting = left
        return taken
