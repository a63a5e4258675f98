"""Random numbers of a training that leave PyTorch's own generator to others in the process.

PyTorch has one generator for a whole process.  Two trainings in two threads would take numbers
from each other, and neither would get the same ones in another run.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_SEEDING: Final = RLock()


@contextmanager
def seeds_allowed(device: torch.device | None = None) -> Iterator[None]:
    """The block may seed PyTorch's own generators, which it leaves as they were.

    Threads enter it one after another, but for those that compute on a CUDA ``device``.
    """
    if device is not None and device.type == "cuda":
        with torch.random.fork_rng([device]):
            yield
    else:
        with _SEEDING, torch.random.fork_rng(devices=[]):
            yield


@contextmanager
def weights_drawn_with(seed: int) -> Iterator[None]:
    """New weights within the block follow from ``seed``; PyTorch's modules draw from its own."""
    with seeds_allowed():
        torch.manual_seed(seed)
        yield


class DefaultDraws(TorchDispatchMode):
    """Within it, a thread's draws from PyTorch's own generator set ``found``."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded in func.tags and kwargs.get("generator") is None:
            self.found = True
        return func(*args, **kwargs)
