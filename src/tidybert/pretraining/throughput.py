"""How much work a token is, what a device can do, and how many tokens fit it at once."""

from collections.abc import Callable
from typing import Final

import torch

from tidybert.configuration import BertConfig
from tidybert.errors import UsageError, param
from tidybert.pretraining.instance_options import InstanceOptions, MaskingOptions
from tidybert.pretraining.micro_batch import largest_micro_batch
from tidybert.pretraining.objectives import PretrainingModel, loss_parts
from tidybert.pretraining.pretraining_arguments import PretrainingArguments, least_micro_batch
from tidybert.pretraining.stream import longest_batch
from tidybert.training.distributed import Processes
from tidybert.training.precision import is_mixed

_MICRO_BATCH_TOKENS: Final = {"cpu": 4096, "cuda": 32_768}
# Dense bfloat16 operations a second, as NVIDIA states them; the first name that fits counts.
_PEAK_FLOPS: Final = {
    "H200 NVL": 835e12,
    "H200": 989e12,
    "H100 NVL": 835e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "A100": 312e12,
}


def flops_per_token(config: BertConfig, sequence_length: float, masked_share: float) -> float:
    """Floating-point operations of a training step for each token, forward and backward.

    6 for each weight of a matrix that the token goes through (Kaplan et al. 2020), and 12 L H S for
    the scores and their sums over S tokens.  The masked-LM head counts for the share of tokens that
    are masked; what follows attention in the last layer for these and [CLS].
    """
    layers, width = config.num_hidden_layers, config.hidden_size
    projections = 3 * width**2
    rest = width**2 + 2 * width * config.intermediate_size
    read_share = masked_share + 1 / sequence_length
    weights = layers * projections + (layers - 1 + read_share) * rest
    head = masked_share * (width**2 + width * config.vocab_size)
    return 6 * (weights + head) + 12 * layers * width * sequence_length


def peak_flops(device: torch.device) -> float | None:
    """What a CUDA device can do in bfloat16 a second; None where it is not known, or a CPU."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for known, peak in _PEAK_FLOPS.items() if known in name), None)


def micro_batch_tokens(
    model: PretrainingModel,
    instances: InstanceOptions,
    masking: MaskingOptions,
    arguments: PretrainingArguments,
    processes: Processes,
    device: torch.device,
    note: Callable[[str], None],
) -> int:
    """--micro-batch, its default, or what fits the memory of every process's device."""
    on_cuda = device.type == "cuda"
    given, default = arguments.micro_batch, _MICRO_BATCH_TOKENS["cuda" if on_cuda else "cpu"]
    if isinstance(given, int):
        return given
    if given is None or not on_cuda:
        if given is not None:
            note(f"{param('micro_batch', 'auto')}: {default:,}, for the device is {device.type}")
        return default
    if arguments.sharding == "full" and processes.size > 1:
        raise UsageError(
            f"{param('micro_batch', 'auto')} tries the whole model on each device, and "
            f"{param('sharding', 'full')} is for models that do not fit one: give a number of "
            "tokens"
        )
    longest = instances.max_seq_length
    if arguments.setting("long_share"):
        longest = max(longest, arguments.long_seq_length)
    least = least_micro_batch(arguments, longest)
    found = largest_micro_batch(
        model,
        loss_parts,
        lambda tokens: longest_batch(
            tokens, longest, masking.num_predictions(longest), instances.pairs
        ),
        start=default,
        least=least,
        # A process has no more of a step, but for the last sequence.
        most=max(least, arguments.setting("tokens_per_step") // processes.size + longest),
        mixed=is_mixed(arguments.precision, device),
        processes=processes,
    )
    note(f"{param('micro_batch', 'auto')}: {found:,} at once fit, with a margin")
    return found
