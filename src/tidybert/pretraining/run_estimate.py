"""What a run takes, for the line before its start: parameters, memory, hours."""

import time
from dataclasses import dataclass
from typing import Final

import torch

from tidybert.configuration import BertConfig
from tidybert.pretraining.throughput import flops_per_token, peak_flops

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
    config: BertConfig,
    *,
    num_tokens: int,
    sequence_length: float,
    predicted_share: float,
    micro_batch: int,
    num_moments: int,
    device: torch.device,
    mixed: bool,
    num_processes: int,
) -> Estimate:
    """What a run takes, roughly: a formula, and the rate of one product on the device.

    micro_batch: tokens at once.  num_moments: numbers that the optimizer keeps for a weight.
    """
    weights = _BYTES * (2 + num_moments) * config.num_parameters
    width = 2 if mixed else 4
    kept = micro_batch * config.num_hidden_layers * config.hidden_size * _KEPT * width / 2
    flops = flops_per_token(config, sequence_length, predicted_share) * num_tokens
    rate = peak_flops(device, mixed=mixed) or _measured_rate(device, config.hidden_size)
    seconds = flops / (_SHARE_OF_RATE * rate * num_processes)
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
