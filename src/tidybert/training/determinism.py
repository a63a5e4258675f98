"""``--deterministic``: a training on CUDA that gives the same bits each time, as one on a CPU does.

Some of CUDA's kernels add up in the order in which their threads arrive.  PyTorch then takes others
that do not, the backward of flash attention among them, and raises an error for an operation that
has none ("Reproducibility" in its notes).
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

import torch

from tidybert.errors import UsageError

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
    """``deterministic_algorithms`` where they are wanted, on a device that needs them.

    On a CPU results repeat anyway, so there nothing changes.
    """
    on_cuda = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    return deterministic_algorithms() if wanted and on_cuda else nullcontext()
