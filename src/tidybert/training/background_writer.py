"""A thread that writes checkpoints while steps go on."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from torch import Tensor

from tidybert.training.sharding import whole


class BackgroundWriter:
    """Runs writes in their order; an error of one is raised by a later call, or by ``wait``.

    After a failed write the later ones are left out, because they may rely on it.  At most two are
    waiting, because each holds a copy of the weights.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: deque[Future[object]] = deque()

    def start(self, write: Callable[[], object]) -> None:
        """Write after all earlier writes."""
        self._take(1)
        before = self._pending[-1] if self._pending else None
        self._pending.append(self._pool.submit(_write_after, before, write))

    def wait(self) -> None:
        """Wait until all is written; raises what a write raised."""
        self._take(0)

    def close(self) -> None:
        """``wait``, and end the thread."""
        try:
            self.wait()
        finally:
            self._pool.shutdown()

    def _take(self, most: int) -> None:
        """Wait until at most this many are pending."""
        while len(self._pending) > most:
            self._pending.popleft().result()


def _write_after(before: Future[object] | None, write: Callable[[], object]) -> None:
    if before is not None:
        before.result()
    write()


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
