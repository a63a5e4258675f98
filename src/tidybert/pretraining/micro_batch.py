"""``--micro-batch auto``: the largest micro-batch that the device's memory holds.

It is found by trying: forward and backward of a batch, twice as large while it fits, half as large
while it does not.  Each process tries alone, before the model is shared, so that none waits for one
that has run out of memory; then all take the smallest answer.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import nn

from tidybert.errors import TrainingError, param
from tidybert.pretraining.step_reports import Part
from tidybert.training.distributed import Processes
from tidybert.training.precision import autocast

# What a batch may need beyond the one that was tried: other shapes, a fragmented memory.
_MARGIN: Final = 1.25
# Values that a parameter has besides itself and its gradient: Adam's moments, and with several
# processes the buffer in which gradients travel.
_MOMENTS: Final = 2


def largest_micro_batch(
    model: nn.Module,
    loss: Callable[[nn.Module, Any], Mapping[str, Part]],
    make_batch: Callable[[int], Any],
    *,
    start: int,
    least: int,
    most: int,
    mixed: bool,
    processes: Processes,
) -> int:
    """Tokens from ``least`` to ``most`` that fit the devices of all processes, with a margin.

    ``make_batch`` makes a batch of so many tokens; ``start`` is tried first.  TrainingError where
    not even ``least`` fit.
    """
    device = next(model.parameters()).device
    trained = [each for each in model.parameters() if each.requires_grad]
    kept = _MOMENTS + (processes.size > 1)

    def attempt(tokens: int) -> None:
        held = [torch.empty(kept * each.numel(), device=device) for each in trained]
        with autocast(device, mixed):
            parts = loss(model, make_batch(tokens).to(device))
        torch.stack([each.total for each in parts.values()]).sum().backward()  # type: ignore[no-untyped-call]
        held.clear()

    def fits(tokens: int) -> bool:
        try:
            attempt(int(_MARGIN * tokens))
        except torch.cuda.OutOfMemoryError:
            return False
        finally:
            model.zero_grad(set_to_none=True)
        return True

    model.train()
    found = processes.least(_largest(fits, start, least, most), device)
    torch.cuda.empty_cache()
    if not found:
        raise TrainingError(
            f"the device's memory is too small for {least:,} tokens at once, forward and backward; "
            f"try {param('checkpoint_activations')}, or a smaller model"
        )
    return found


def _largest(fits: Callable[[int], bool], start: int, least: int, most: int) -> int:
    """By doubling from ``start`` up to ``most``, or halving down to ``least``; 0 if none fits."""
    tokens = max(least, min(start, most))
    if fits(tokens):
        while tokens < most and fits(min(most, 2 * tokens)):
            tokens = min(most, 2 * tokens)
        return tokens
    while tokens > least:
        tokens = max(least, tokens // 2)
        if fits(tokens):
            return tokens
    return 0
