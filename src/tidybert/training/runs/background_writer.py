"""A thread that writes checkpoints while steps go on."""

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from torch import Tensor

from tidybert.training.sharding import whole


class BackgroundWriter:
    """Runs writes in their order; a later call, or ``wait``, raises the error of one.

    After a failed write it skips the later ones, because they may rely on it.  At most two are
    pending, because each holds a copy of the weights.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: deque[Future[object]] = deque()

    def start(self, write: Callable[[], object]) -> None:
        """Write after all earlier writes."""
        self.wait(1)
        before = self._pending[-1] if self._pending else None

        def write_after() -> None:
            if before is not None:
                before.result()
            write()

        self._pending.append(self._pool.submit(write_after))

    def wait(self, most: int = 0) -> None:
        """Wait until at most this many writes are pending; raises what a write raised."""
        while len(self._pending) > most:
            self._pending.popleft().result()

    def close(self) -> None:
        """``wait``, and end the thread."""
        try:
            self.wait()
        finally:
            self._pool.shutdown()


def snapshot(tensors: Mapping[str, Tensor], wanted: bool = True) -> dict[str, Tensor]:
    """Whole copies on the CPU, which later steps do not change; none where they are not wanted.

    All processes must call this together where tensors are sharded.
    """
    copies = {}
    for name, each in tensors.items():
        gathered = whole(each.detach())
        if wanted:
            copies[name] = gathered.to("cpu", copy=True)
    return copies
