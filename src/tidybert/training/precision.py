"""Mixed precision: products in bfloat16 under autocast, weights and their updates in float32."""

import torch

from tidybert.errors import UsageError


def is_mixed(precision: str, device: torch.device) -> bool:
    """Whether steps run in bfloat16; auto does so on CUDA alone.

    Raises UsageError where bfloat16 is asked of a device that has no such products.
    """
    if device.type == "cpu" or precision == "float32":
        return precision == "bfloat16"
    can = device.type == "cuda" and _has_bfloat16(device)
    if precision == "bfloat16" and not can:
        raise UsageError(
            f"--precision bfloat16 needs a CPU or a CUDA device that has it, and the model is on "
            f"{device}: use float32, or auto"
        )
    return can


def _has_bfloat16(device: torch.device) -> bool:
    """Whether a CUDA device multiplies in bfloat16 by itself; before Ampere it is only emulated."""
    with torch.cuda.device(device):
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def autocast(device: torch.device, mixed: bool) -> torch.autocast:
    """The context that a step's forward runs in."""
    return torch.autocast(device.type, torch.bfloat16, enabled=mixed)
