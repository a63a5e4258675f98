"""The work of a token, and the share of the devices' peak that a run reaches."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch

from tidybert.configuration import BertConfig
from tidybert.pretraining.plan import PretrainingPlan
from tidybert.training.precision import is_mixed

# Dense operations a second in bfloat16 and in float32 (without TF32), as NVIDIA states them; the
# first name that fits counts.
_PEAK_FLOPS: Final = {
    "H200 NVL": (835e12, 60e12),
    "H200": (989e12, 67e12),
    "H100 NVL": (835e12, 60e12),
    "H100 PCIe": (756e12, 51e12),
    "H100": (989e12, 67e12),
    "A100": (312e12, 19.5e12),
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


def peak_flops(device: torch.device, *, mixed: bool = True) -> float | None:
    """A CUDA device's operations a second, in bfloat16 or not ``mixed``; None where unknown."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    peaks = next((peaks for known, peaks in _PEAK_FLOPS.items() if known in name), None)
    return peaks and peaks[not mixed]


@dataclass(frozen=True)
class Utilization:
    """The share of its devices' peak that a run reaches.

    flops: operations for a token, by phase.  switch: the first step of the second phase.
    peak: operations a second of all devices.
    """

    flops: Sequence[float]
    switch: int
    peak: float

    def of_step(self, step: int, tokens_per_second: float) -> float:
        """The share in one step, counted from 0."""
        return tokens_per_second * self.flops[step >= self.switch] / self.peak

    def of_run(self, num_steps: int, num_tokens: int, seconds: float) -> float:
        """The share in a whole run."""
        is_long = 1 - self.switch / num_steps
        per_token = (1 - is_long) * self.flops[0] + is_long * self.flops[-1]
        return per_token * num_tokens / seconds / self.peak


# What a run takes, for the line before its start: parameters, memory, hours.

# Bytes of a weight, its gradient and each moment.
_BYTES: Final = 4
# Bytes that a layer keeps for the backward, for each token and number of its width: 34 in 16 bits
# (Korthikanti et al. 2022, "Reducing activation recomputation", section 4.1, without the scores,
# which attention does not keep).
_KEPT: Final = 34
# Of the rate of large products, what a whole step reaches.
_SHARE_OF_RATE: Final = 0.5
_OPTIMUM: Final = 20


@dataclass(frozen=True)
class Estimate:
    """What a run takes: parameters; bytes of memory; seconds of all steps."""

    num_parameters: int
    num_bytes: float
    seconds: float
    num_tokens: int

    def line(self) -> str:
        """One line, with what a law of compute says of the size for this many tokens."""
        hours = self.seconds / 3600
        took = f"{hours:,.1f} hours" if hours >= 1 else f"{self.seconds / 60:,.1f} minutes"
        return (
            f"{self.num_parameters / 1e6:,.1f} M parameters, about {self.num_bytes / 1e9:,.1f} GB "
            f"of memory and {took} for {self.num_tokens / 1e6:,.1f} M tokens: "
            f"{self.num_tokens / self.num_parameters:,.1f} a parameter (Hoffmann et al. 2022 find "
            f"{_OPTIMUM} best for left-to-right models: these tokens would suit "
            f"{self.num_tokens / _OPTIMUM / 1e6:,.1f} M parameters)"
        )


def estimate(
    plan: PretrainingPlan, config: BertConfig, micro_batch: int, device: torch.device
) -> Estimate:
    """What a run takes, roughly: a formula, and the rate of one product on the device."""
    arguments = plan.arguments
    tokens_per_step: int = arguments.setting("tokens_per_step")
    num_tokens = arguments.setting("max_steps") * tokens_per_step
    mixed = is_mixed(arguments.precision, device)
    weights = _BYTES * (2 + arguments.num_moments) * config.num_parameters
    at_once, width = min(micro_batch, tokens_per_step), 2 if mixed else 4
    kept = at_once * config.num_hidden_layers * config.hidden_size * _KEPT * width / 2
    length = plan.instances.max_seq_length
    flops = flops_per_token(config, length, plan.predicted_share) * num_tokens
    rate = peak_flops(device, mixed=mixed) or _measured_rate(device, config.hidden_size)
    seconds = flops / (_SHARE_OF_RATE * rate * plan.processes.size)
    return Estimate(config.num_parameters, weights + kept, seconds, num_tokens)


def _measured_rate(device: torch.device, width: int) -> float:
    """Operations a second of a product such as the model's, the best of three."""
    rows = torch.ones(2048, width, device=device)
    weight = torch.ones(width, 4 * width, device=device)
    best = float("inf")
    for _ in range(4):
        begun = time.perf_counter()
        (rows @ weight).sum().item()
        best = min(best, time.perf_counter() - begun)
    return 2 * 2048 * width * 4 * width / best
