"""What the machine can do at best: products in float32 and in int8, and bytes from memory."""

import time
from collections.abc import Callable
from typing import Final

import torch

from tidybert.modeling.kernels.linear import MOST_ROWS, Int8Linear, largest_weight, product

_WIDTH: Final = 1024
_ROWS: Final = 8 * MOST_ROWS
_BYTES: Final = 2**28
_TRIES: Final = 8


def machine_rates() -> dict[str, float]:
    """The best of several tries, with PyTorch's number of threads.

    "gflops" of float32 and "int8_gops" (0 without int8) count a multiplication and an addition as
    two; "copied_gb_per_second" counts what a copy reads and what it writes.
    """
    hidden, weight, bias = torch.randn(_ROWS, _WIDTH), torch.randn(_WIDTH, _WIDTH), torch.zeros(1)
    bias = bias.expand(_WIDTH).contiguous()
    source = torch.ones(_BYTES, dtype=torch.uint8)
    target = torch.empty_like(source)
    operations = 2e-9 * _ROWS * _WIDTH**2
    with torch.inference_mode():
        rates = {"gflops": operations / _seconds(lambda: product(hidden, weight, bias))}
        rates["int8_gops"] = 0.0
        if largest_weight():
            linear = Int8Linear(weight, bias)
            rates["int8_gops"] = operations / _seconds(lambda: linear(hidden))
        rates["copied_gb_per_second"] = 2e-9 * _BYTES / _seconds(lambda: target.copy_(source))
    return rates


def rates_line(rates: dict[str, float]) -> str:
    """The same in words."""
    return (
        f"the machine: products at {rates['gflops']:,.0f} GFLOP/s in float32 and "
        f"{rates['int8_gops']:,.0f} GOP/s in int8, a copy in memory at "
        f"{rates['copied_gb_per_second']:.1f} GB/s"
    )


def _seconds(work: Callable[[], object]) -> float:
    times = []
    for _ in range(_TRIES):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)
