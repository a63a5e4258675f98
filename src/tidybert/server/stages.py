"""The stages of an answer, each on the thread that suits it: tokenise, compute, decode."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Any, Final, TypeVar

from tidybert.data.features import Features
from tidybert.server.batch_threads import BatchThreads
from tidybert.server.meters import Meters
from tidybert.server.work_queue import Job, Lane, Rows, WorkQueue

_LOGGER: Final = logging.getLogger(__name__)

SLICE: Final = 64
"""Inputs that are tokenised or decoded in one go; other requests pass between."""
# Work of more characters, or tokens, is done in a thread, so that the event loop stays free.
_FEW_CHARACTERS: Final = 4096
_FEW_TOKENS: Final = 1024

T = TypeVar("T")


class Stages:
    """The threads of a server, and the work that requests give them.

    Args:
        queue: where features wait for the threads that compute.
        meters: count the seconds of each stage.
        num_threads: how many threads compute.
    """

    def __init__(self, queue: WorkQueue, meters: Meters, num_threads: int) -> None:
        self._queue = queue
        self._meters = meters
        self._threads = BatchThreads(queue, num_threads, meters.batch)
        self._aside = ThreadPoolExecutor(1, "tidybert-texts")
        #: One thread at a time uses the tokenizers.
        self.tokenizers = threading.Lock()

    def start(self) -> None:
        """Begin to compute."""
        self._threads.start()

    def close(self) -> None:
        """Compute what waits, then end the threads."""
        self._queue.close()
        self._threads.join()
        self._aside.shutdown(cancel_futures=True)

    async def tokenise(self, size: int, work: Callable[..., T], *given: Any) -> T:
        """Work with a tokenizer: at once if it is short and the tokenizers are free.

        ``size`` is about how many characters there are, see ``num_characters``.
        """
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
        self, inputs: Sequence[Any], work: Callable[[Sequence[Any]], T]
    ) -> list[T]:
        """What ``work`` makes of each slice of the inputs."""
        return [await self.tokenise(num_characters(part), work, part) for part in slices(inputs)]

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


def slices(given: Sequence[T]) -> Iterator[Sequence[T]]:
    """Parts of SLICE inputs each."""
    for start in range(0, len(given), SLICE):
        yield given[start : start + SLICE]


def num_characters(texts: Sequence[Any], text_pairs: Sequence[Any] | None = None) -> int:
    """About how many characters there are to tokenise."""
    size = 0
    for one in texts:
        size += len(one) if isinstance(one, str) else _FEW_CHARACTERS // 8
    return size if text_pairs is None else size + num_characters(text_pairs)
