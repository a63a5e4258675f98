"""The work of a token, and the share of the devices' peak that a run reaches."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch

from tidybert.configuration import BertConfig

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
    """A CUDA device's operations a second; None for unknown ones, and for a CPU.

    ``mixed``: in bfloat16, else in float32.
    """
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
