"""Tensors to another device without waiting for it."""

import torch
from torch import Tensor


def to_device(tensor: Tensor, device: torch.device | str) -> Tensor:
    """``tensor.to(device)``; to CUDA through pinned memory, so that the program goes on.

    PyTorch keeps the pinned memory until the copy is done.
    """
    if tensor.device.type != "cpu" or torch.device(device).type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
