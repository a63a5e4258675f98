"""What the server measures of itself, for Prometheus."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, perf_counter
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, values
from prometheus_client.multiprocess import MultiProcessCollector

from tidybert.server.settings import Worker
from tidybert.server.work_queue import Taken, WorkQueue

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_TOKENS: Final = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 16_384)


class Meters:
    """The counters of one server.

    Stages are tokenise, wait (for a thread), compute (a batch), answer (wait and compute together)
    and decode.  One of several workers keeps its figures in files of the folder that ``share`` has
    named, and its text has the sum over all of them, those that have ended included.
    """

    def __init__(self, queue: WorkQueue, worker: Worker | None) -> None:
        self.registry = CollectorRegistry()
        self._queue, self._worker = queue, worker
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
        """Time a stage."""
        begun = perf_counter()
        yield
        self.observe(name, perf_counter() - begun)

    def observe(self, name: str, seconds: float) -> None:
        """Count the seconds of a stage."""
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
        if self._worker is None:
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
