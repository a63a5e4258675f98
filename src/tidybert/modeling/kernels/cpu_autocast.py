"""On a CPU, autocast is for the products of linear layers alone (kernels/linear.py).

Other products there are small and their float32 kernels are the fast ones.
"""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def float32_on_a_cpu(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function without a CPU's autocast; on other devices nothing changes."""

    @wraps(function)
    def run(*given: P.args, **named: P.kwargs) -> R:
        with torch.autocast("cpu", enabled=False):
            return function(*given, **named)

    return run
