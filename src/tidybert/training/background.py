"""Write checkpoints in a thread of their own, so that steps go on meanwhile."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from torch import Tensor

from tidybert.training.sharding import whole


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


def snapshot(tensors: dict[str, Tensor], wanted: bool = True) -> dict[str, Tensor]:
    """Copies on the CPU, whole, which later steps do not change.

    All processes must call this together where tensors are sharded; those that do not want the
    copies get none.
    """
    copies = {}
    for name, each in tensors.items():
        gathered = whole(each.detach())
        if wanted:
            copies[name] = gathered.to("cpu", copy=True)
    return copies
