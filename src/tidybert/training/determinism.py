"""``--deterministic``: a training on CUDA that gives the same bits each time, as one on a CPU does.

Some of CUDA's kernels add up in the order in which their threads arrive.  PyTorch then takes others
that do not, the backward of flash attention among them, and raises an error for an operation that
has none ("Reproducibility" in its notes).
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import RLock
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tidybert.errors import UsageError

# Random numbers of a training that leave PyTorch's own generator to others in the process.
#
# PyTorch has one generator for a whole process.  Two trainings in two threads would take numbers
# from each other, and neither would get the same ones in another run.

_SEEDING: Final = RLock()


@contextmanager
def seeds_allowed(device: torch.device | None = None) -> Iterator[None]:
    """The block may seed PyTorch's own generators, which it leaves as they were; one on the CPU."""
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


_MEMORY: Any = torch.utils.deterministic
_WORKSPACE: Final = "CUBLAS_WORKSPACE_CONFIG"
# cuBLAS repeats its results with either of these sizes of its work space.
_FIXED: Final = (":4096:8", ":16:8")


@contextmanager
def deterministic_algorithms() -> Iterator[None]:
    """Within it PyTorch takes algorithms alone that repeat to the bit.

    cuBLAS reads its part of this from the environment at its first product, so no product may have
    run on CUDA before.  Raises UsageError where the environment asks cuBLAS for something else.
    """
    given = os.environ.setdefault(_WORKSPACE, _FIXED[0])
    if given not in _FIXED:
        raise UsageError(
            f"{_WORKSPACE} is {given!r}, with which products on CUDA do not repeat; expected "
            f"{' or '.join(_FIXED)}, or unset it"
        )
    before = torch.are_deterministic_algorithms_enabled()
    only_warned = torch.is_deterministic_algorithms_warn_only_enabled()
    filled = _MEMORY.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    # No operation here reads memory that nobody wrote, so filling it would only take time.
    _MEMORY.fill_uninitialized_memory = False
    try:
        yield
    finally:
        _MEMORY.fill_uninitialized_memory = filled
        torch.use_deterministic_algorithms(before, warn_only=only_warned)


def repeating(wanted: bool, device: str) -> AbstractContextManager[None]:
    """``deterministic_algorithms`` where they are wanted and needed: a CPU repeats anyway."""
    return deterministic_algorithms() if wanted and on_cuda(device) else nullcontext()


def on_cuda(device: str) -> bool:
    """Whether a --device is a CUDA device here."""
    return device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
