"""What the server measures of itself, for Prometheus."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, perf_counter
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from tidybert.server.settings import Worker
from tidybert.server.work_queue import Taken, WorkQueue

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
# The name of a figure in Prometheus' text, and whether it has labels.
_NAME: Final = re.compile(rb"^(\w+)(\{?)", re.MULTILINE)
_TOKENS: Final = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 16_384)


class Meters:
    """The counters of one server.

    Stages are tokenise, wait (for a thread), compute (a batch), answer (wait and compute together)
    and decode.
    """

    def __init__(self, queue: WorkQueue, worker: Worker | None) -> None:
        self.registry = CollectorRegistry()
        self._worker = worker
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
        waiting = Gauge(
            "tidybert_queue", "What waits in the queue.", ["unit"], registry=self.registry
        )
        waiting.labels("inputs").set_function(lambda: queue.inputs)
        waiting.labels("tokens").set_function(lambda: queue.tokens)
        self._stages = {
            name: self.seconds.labels(name)
            for name in ("tokenise", "wait", "compute", "answer", "decode")
        }

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage."""
        begun = perf_counter()
        yield
        self._stages[name].observe(perf_counter() - begun)

    def observe(self, name: str, seconds: float) -> None:
        """Count the seconds of a stage."""
        self._stages[name].observe(seconds)

    def batch(self, taken: Taken, seconds: float) -> None:
        """Count a batch that took ``seconds`` to compute."""
        now = monotonic()
        self.tokens.observe(taken.tokens)
        self.inputs.inc(len(taken.pieces))
        self.observe("compute", seconds)
        for job in {id(each.job): each.job for each in taken.pieces}.values():
            self.observe("wait", max(0.0, now - seconds - job.begun))

    def text(self) -> bytes:
        """All of it in Prometheus' text format; one of several workers labels each figure."""
        found = generate_latest(self.registry)
        if self._worker is None:
            return found
        label = b'{worker="%d"' % self._worker.number
        return _NAME.sub(lambda name: name[1] + label + (b"," if name[2] else b"}"), found)
