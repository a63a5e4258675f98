"""Write checkpoints in a thread of their own, so that steps go on meanwhile."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from torch import Tensor


class BackgroundWriter:
    """Runs one write at a time; an error of a write is raised by the next call, or by ``wait``."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._running: Future[None] | None = None

    def start(self, write: Callable[[], object]) -> None:
        """Begin to write, once what was begun before is done."""
        self.wait()
        self._running = self._pool.submit(lambda: (write(), None)[1])

    def wait(self) -> None:
        """Until all is written; raises what the write raised."""
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def close(self) -> None:
        """``wait``, and end the thread."""
        try:
            self.wait()
        finally:
            self._pool.shutdown()


def snapshot(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copies on the CPU, which later steps do not change."""
    return {name: each.detach().to("cpu", copy=True) for name, each in tensors.items()}
