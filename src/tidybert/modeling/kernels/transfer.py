"""Tensors to another device, and back, without waiting for it."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


def to_device(tensor: Tensor, device: torch.device | str) -> Tensor:
    """``tensor.to(device)``; to CUDA through pinned memory, so that the program goes on.

    A tensor that another thread has pinned is only copied.  PyTorch keeps the pinned memory until
    the copy is done.
    """
    if tensor.device.type != "cpu" or torch.device(device).type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


class Fetched:
    """A tensor on its way to the CPU; ``numpy`` waits for it, and for nothing launched later."""

    def __init__(self, tensor: Tensor) -> None:
        # From CUDA PyTorch copies into pinned memory, without waiting.
        self._tensor = tensor.to("cpu", non_blocking=tensor.is_cuda)
        self._arrived: torch.cuda.Event | None = None
        if tensor.is_cuda:
            self._arrived = torch.cuda.current_stream(tensor.device).record_event()

    def numpy(self) -> npt.NDArray[np.float32]:
        """The tensor's values; it must be float32."""
        if self._arrived is not None:
            self._arrived.synchronize()
        found: npt.NDArray[np.float32] = self._tensor.numpy()
        return found

    def values(self) -> list[float]:
        """The same of a tensor (N,), as Python's numbers."""
        if self._arrived is not None:
            self._arrived.synchronize()
        found: list[float] = self._tensor.tolist()
        return found


def steps_late(device: torch.device) -> int:
    """After how many later steps a step's figures are read: on CUDA the next one runs by then."""
    return 1 if device.type == "cuda" else 0
