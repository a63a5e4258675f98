"""Mixed precision: products in bfloat16 under autocast, weights and their updates in float32."""

import logging
from collections.abc import Callable, Mapping
from typing import Final

import torch

from tidybert.errors import UsageError, param

_LOGGER: Final = logging.getLogger(__name__)


def is_mixed(precision: str, device: torch.device) -> bool:
    """Whether steps run in bfloat16; auto does so on CUDA alone.

    Raises UsageError for bfloat16 on a device that cannot multiply in it.
    """
    if device.type == "cpu" or precision == "float32":
        if precision == "auto":
            _LOGGER.info("precision: float32, because a CPU uses bfloat16 only on request")
        return precision == "bfloat16"
    can = device.type == "cuda" and _has_bfloat16(device)
    if precision == "bfloat16" and not can:
        raise UsageError(
            f"{param('precision', 'bfloat16')} needs a CPU or a CUDA device that has it, and the "
            f"model is on {device}: use float32, or auto"
        )
    if precision == "auto":
        _LOGGER.info(f"precision: {'bfloat16' if can else 'float32'}, which suits {device}")
    return can


def _has_bfloat16(device: torch.device) -> bool:
    """Whether a CUDA device itself multiplies in bfloat16; before Ampere it is only emulated."""
    with torch.cuda.device(device):
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def note_slow_bfloat16(device: torch.device, mixed: bool, note: Callable[[str], None]) -> None:
    """Note a CPU without bfloat16 instructions: steps take two to eight times as long there."""
    # Some versions of PyTorch do not report the processor's instructions; then it notes nothing.
    capabilities: Mapping[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    if not mixed or device.type != "cpu" or not capabilities:
        return
    if not any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16")):
        note(
            f"{param('precision', 'bfloat16')}: this processor has no instructions for it, so "
            "steps take longer than in float32"
        )


def autocast(device: torch.device, mixed: bool) -> torch.autocast:
    """The context that a step's forward runs in, in each of its threads."""
    # On a CPU all threads would share autocast's cache of the weights.
    keep = device.type != "cpu"
    return torch.autocast(device.type, torch.bfloat16, enabled=mixed, cache_enabled=keep)
