"""Activations of scores and of a Dense, by their names in sentence-transformers' files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import erf, sqrt
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from torch import nn

Floats = npt.NDArray[np.float32]


def _sigmoid(values: Floats) -> Floats:
    # The exponential of a large negative value overflows to infinity, and 0 is right.
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-values)))


def _normal_cdf(values: Floats) -> Floats:
    return np.array([(1 + erf(each / sqrt(2))) / 2 for each in values.tolist()], dtype=np.float32)


IDENTITY: Final = "torch.nn.modules.linear.Identity"
SIGMOID: Final = "torch.nn.modules.activation.Sigmoid"
ACTIVATIONS: Final[Mapping[str, Callable[[Floats], Floats]]] = {
    "torch.nn.modules.activation.Tanh": np.tanh,
    IDENTITY: lambda values: values,
    "torch.nn.modules.activation.ReLU": lambda values: np.maximum(values, 0),
    "torch.nn.modules.activation.GELU": lambda values: values * _normal_cdf(values),
    "torch.nn.modules.activation.SiLU": lambda values: values * _sigmoid(values),
    SIGMOID: _sigmoid,
}
"""On values (N,)."""


def activation_module(name: str) -> nn.Module:
    """The module of PyTorch that computes one of ACTIVATIONS."""
    from torch import nn

    made: nn.Module = getattr(nn, name.rpartition(".")[2])()
    return made
