"""A bounded queue of inputs, fair among clients.

Inputs wait, and not requests: those of a long request and of short ones pass in turn.  Each client
has a line of its own, first in, first out; a batch takes one input of each client in turn.
"""

import asyncio
import logging
import math
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from operator import add
from time import monotonic, perf_counter
from typing import Any, Final, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, values
from prometheus_client.multiprocess import MultiProcessCollector

from tidybert.data.features import Features
from tidybert.server.answers import Refusal
from tidybert.system.cores import keep_freed_memory, num_threads, use_threads_here

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
    """The features of one request; ``finish`` is called once, when outputs are whole or failed."""

    def __init__(
        self, lane: Lane, client: str, features: Sequence[Features], finish: Callable[[], None]
    ) -> None:
        self.lane, self.client, self.features, self.finish = lane, client, features, finish
        self.outputs: list[Any] = [None] * len(features)
        self.error: BaseException | None = None
        self.begun = monotonic()
        self._left = len(features)
        self._lock = threading.Lock()

    def give(self, number: int, rows: Rows) -> None:
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
        """Wait for a batch, after which ``done`` is called; None once it is closed and empty."""
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


# What the server measures of itself, for Prometheus.

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_TOKENS: Final = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 16_384)


class Meters:
    """The counters of one server.

    Stages are tokenise, wait (for a thread), compute (a batch), answer (wait and compute together)
    and decode.  One of several workers keeps its figures in files of the folder that ``share`` has
    named, and its text has the sum over all of them, those that have ended included.
    """

    def __init__(self, queue: WorkQueue, *, is_alone: bool) -> None:
        self.registry = CollectorRegistry()
        self._queue, self._is_alone = queue, is_alone
        self.requests = Counter(
            "tidybert_requests", "Requests by route and status.", ["route", "status"],
            registry=self.registry,
        )  # fmt: skip
        self.seconds = Histogram(
            "tidybert_stage_seconds", "Seconds of each stage of a request.", ["stage"],
            buckets=_SECONDS, registry=self.registry,
        )  # fmt: skip
        self.tokens = Histogram(
            "tidybert_batch_tokens", "Tokens of a batch.", buckets=_TOKENS, registry=self.registry
        )
        self.inputs = Counter(
            "tidybert_inputs", "Inputs that were computed.", registry=self.registry
        )
        self._waiting = Gauge(
            "tidybert_queue", "What waits in the queue.", ["unit"], multiprocess_mode="livesum",
            registry=self.registry,
        )  # fmt: skip
        self._stages = {
            name: self.seconds.labels(name)
            for name in ("tokenise", "wait", "compute", "answer", "decode")
        }

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        begun = perf_counter()
        yield
        self.observe(name, perf_counter() - begun)

    def observe(self, name: str, seconds: float) -> None:
        self._stages[name].observe(seconds)
        self._measure_queue()

    def batch(self, taken: Taken, seconds: float) -> None:
        """Count a batch that took ``seconds`` to compute."""
        now = monotonic()
        self.tokens.observe(taken.tokens)
        self.inputs.inc(len(taken.pieces))
        self.observe("compute", seconds)
        for job in {id(each.job): each.job for each in taken.pieces}.values():
            self.observe("wait", max(0.0, now - seconds - job.begun))

    def text(self) -> bytes:
        """All of it in Prometheus' text format."""
        self._measure_queue()
        if self._is_alone:
            return generate_latest(self.registry)
        of_all = CollectorRegistry()
        MultiProcessCollector(of_all)  # type: ignore[no-untyped-call]
        return generate_latest(of_all)

    def _measure_queue(self) -> None:
        self._waiting.labels("inputs").set(self._queue.inputs)
        self._waiting.labels("tokens").set(self._queue.tokens)


def share(folder: str) -> None:
    """Keep the figures of this process in files of a folder, once ``Meters`` is built."""
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
    values.ValueClass = values.MultiProcessValue()  # type: ignore[no-untyped-call]


def _compute(taken: Taken) -> None:
    """Give each piece its rows, or its job the error; a bad input fails no other request."""
    lane = taken.pieces[0].job.lane
    try:
        outputs = lane.run([each.features for each in taken.pieces])
    except Exception as error:
        if len(taken.pieces) == 1:
            taken.pieces[0].job.fail(error)
            return
        for each in taken.pieces:
            _compute(Taken([each], each.tokens, taken.is_alone))
        return
    for each, rows in zip(taken.pieces, outputs, strict=True):
        each.job.give(each.number, rows)


# The stages of an answer, each on the thread that suits it: tokenise, compute, decode.

_LOGGER: Final = logging.getLogger(__name__)

SLICE: Final = 64
"""Inputs that are tokenised or decoded in one go; other requests pass between."""
# Long texts make smaller slices, so that a request whose time is over ends soon.
_SLICE_CHARACTERS: Final = 65_536
# Work of more characters, or tokens, is done in a thread, so that the event loop stays free.
_FEW_CHARACTERS: Final = 4096
_FEW_TOKENS: Final = 1024

T = TypeVar("T")


class Stages:
    """The threads of a server, and the work that requests give them.

    A thread for each core takes what waits and runs it as one batch; one that is alone computes on
    all cores.
    """

    def __init__(self, queue: WorkQueue, meters: Meters, num_threads: int) -> None:
        self._queue, self._meters, self._num_cores = queue, meters, num_threads
        self._all_begun = threading.Barrier(num_threads + 1)
        self._threads = [
            threading.Thread(target=self._work, name=f"tidybert-{number}", daemon=True)
            for number in range(num_threads)
        ]
        self._aside = ThreadPoolExecutor(1, "tidybert-texts")
        #: One thread at a time uses the tokenizers.
        self.tokenizers = threading.Lock()

    def start(self) -> None:
        """Begin; PyTorch's number of threads in this thread stays as it is."""
        keep_freed_memory()
        before = num_threads()
        for each in self._threads:
            each.start()
        self._all_begun.wait()
        # Threads that others start later begin with the number set last.
        use_threads_here(before)

    def close(self) -> None:
        self._queue.close()
        for each in self._threads:
            each.join()
        self._aside.shutdown(cancel_futures=True)

    def _work(self) -> None:
        # Without this call a new thread's first operation takes the number set last anywhere.
        num_threads()
        use_threads_here(1)
        self._all_begun.wait()
        while (taken := self._queue.take()) is not None:
            begun = perf_counter()
            try:
                use_threads_here(self._num_cores if taken.is_alone else 1)
                _compute(taken)
            finally:
                seconds = perf_counter() - begun
                self._queue.done(taken.tokens, seconds)
            self._meters.batch(taken, seconds)

    async def tokenise(self, size: int, work: Callable[..., T], *given: Any) -> T:
        """Work with a tokenizer on ``size`` characters: at once if short and free, or aside."""
        with self._meters.stage("tokenise"):
            if size <= _FEW_CHARACTERS and self.tokenizers.acquire(blocking=False):
                try:
                    return work(*given)
                finally:
                    self.tokenizers.release()

            def locked() -> T:
                with self.tokenizers:
                    return work(*given)

            return await asyncio.get_running_loop().run_in_executor(self._aside, locked)

    async def tokenise_slices(
        self, parts: Sequence[Sequence[Any]], sizes: Sequence[int], work: Callable[..., T]
    ) -> list[T]:
        """What ``work`` makes of each of the ``slices`` of inputs of these sizes."""
        left = iter(sizes)
        return [await self.tokenise(sum(islice(left, len(part))), work, part) for part in parts]

    async def compute(self, lane: Lane, client: str, features: Sequence[Features]) -> list[Rows]:
        """The rows of each of the features, in batches with those of other requests."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def end() -> None:
            if not future.done():
                future.set_result(None)

        def finish() -> None:
            try:
                loop.call_soon_threadsafe(end)
            except RuntimeError:
                _LOGGER.debug("the event loop ended before an answer")

        job = Job(lane, client, features, finish)
        begun = perf_counter()
        self._queue.put(job)
        try:
            await future
        finally:
            if not future.done() or future.cancelled():
                self._queue.remove(job)
        self._meters.observe("answer", perf_counter() - begun)
        if job.error is not None:
            raise job.error
        return job.outputs

    async def decode(self, features: Sequence[Features], work: Callable[..., T], *given: Any) -> T:
        """Work on the outputs of features: at once if it is short, or in a thread."""
        with self._meters.stage("decode"):
            if sum(len(one.input_ids) for one in features) <= _FEW_TOKENS:
                return work(*given)
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._aside, work, *given)


def slices(given: Sequence[T], sizes: Sequence[int]) -> list[Sequence[T]]:
    """Parts of at most SLICE inputs, and of few characters unless one input has more."""
    found, begun, size = [], 0, 0
    for at, more in enumerate(sizes):
        if at > begun and (at - begun == SLICE or size + more > _SLICE_CHARACTERS):
            found.append(given[begun:at])
            begun, size = at, 0
        size += more
    return [*found, given[begun:]] if given else []


def sizes_of(texts: Sequence[Any], text_pairs: Sequence[Any] | None = None) -> list[int]:
    """About how many characters there are to tokenise in each of the inputs."""
    found = []
    for one in texts:
        size = len(one)
        if not isinstance(one, str):
            are_texts = size and isinstance(one[0], str)
            size = max(_FEW_CHARACTERS // 8, sum(map(len, one)) if are_texts else size)
        found.append(size)
    return found if text_pairs is None else list(map(add, found, sizes_of(text_pairs)))
