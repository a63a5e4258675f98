"""The tokens of a micro-batch.

``auto`` finds the largest by trying: forward and backward of a batch, twice as large while it fits,
half as large while it does not.  Each process tries alone, before the model is shared, so that none
waits for one without memory; then all take the smallest answer.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import nn

from tidybert.errors import TrainingError, UsageError, is_out_of_memory, param
from tidybert.modeling.kernels.masked_lm_loss import SummedLoss
from tidybert.pretraining.batches.masked_rows import longest_batch
from tidybert.pretraining.objectives import PretrainingModel, loss_parts
from tidybert.pretraining.plan import PretrainingPlan
from tidybert.pretraining.pretraining_arguments import least_micro_batch
from tidybert.training.distributed import Processes
from tidybert.training.precision import autocast, is_mixed

_MICRO_BATCH_TOKENS: Final = {"cpu": 4096, "cuda": 32_768}
# Later batches may need more than the tried one: other shapes, fragmented memory.
_MARGIN: Final = 1.25
# Values that a parameter has besides itself and its gradient: Adam's moments, and with several
# processes the buffer in which gradients travel.
_MOMENTS: Final = 2


def micro_batch_tokens(model: PretrainingModel, plan: PretrainingPlan, device: torch.device) -> int:
    """micro_batch, its default, or as many tokens as fit the memory of every process's device."""
    arguments, processes = plan.arguments, plan.processes
    on_cuda = device.type == "cuda"
    given, default = arguments.micro_batch, _MICRO_BATCH_TOKENS["cuda" if on_cuda else "cpu"]
    if isinstance(given, int):
        return given
    if given is None or not on_cuda:
        if given is not None:
            plan.note(
                f"{param('micro_batch', 'auto')}: {default:,}, because the device is {device.type}"
            )
        return default
    if arguments.sharding == "full" and processes.size > 1:
        raise UsageError(
            f"{param('micro_batch', 'auto')} tries the whole model on each device, and "
            f"{param('sharding', 'full')} is for models that do not fit one: give a number of "
            "tokens"
        )
    longest = plan.longest
    num_predictions = plan.num_predictions(longest)
    least = least_micro_batch(arguments, longest)
    found = largest_micro_batch(
        model,
        loss_parts,
        lambda tokens: longest_batch(tokens, longest, num_predictions, plan.instances.pairs),
        start=default,
        least=least,
        # A step gives a process no more than this, plus a last sequence.
        most=max(least, arguments.setting("tokens_per_step") // processes.size + longest),
        mixed=is_mixed(arguments.precision, device),
        processes=processes,
    )
    plan.note(f"{param('micro_batch', 'auto')}: {found:,} at once fit, with a margin")
    return found


def largest_micro_batch(
    model: nn.Module,
    loss: Callable[[nn.Module, Any], Mapping[str, SummedLoss]],
    make_batch: Callable[[int], Any],
    *,
    start: int,
    least: int,
    most: int,
    mixed: bool,
    processes: Processes,
) -> int:
    """Tokens from ``least`` to ``most`` that fit the devices of all processes, with a margin.

    ``make_batch`` makes a batch of a number of tokens; ``start`` is tried first.  Raises
    TrainingError where ``least`` do not fit.
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
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            return False
        finally:
            model.zero_grad(set_to_none=True)
        return True

    model.train()
    found = processes.least(_largest(fits, start, least, most))
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
