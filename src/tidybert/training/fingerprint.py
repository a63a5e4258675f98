"""A hash of all that decides a run's course, so that no other run goes on from its checkpoints."""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import torch
from torch import nn


def deciding(arguments: Mapping[str, Any], but: Collection[str] = ()) -> dict[str, Any]:
    """The arguments that decide a run's course: not how often it is saved and logged, nor ``but``.

    A name in ``but`` that ends in ``_`` leaves out all that begin with it.
    """
    prefixes = ("save_", "logging_", *(name for name in but if name.endswith("_")))
    return {
        name: value
        for name, value in arguments.items()
        if not name.startswith(prefixes) and name not in but
    }


def fingerprint(settings: str, model: nn.Module, data: Iterable[bytes] = ()) -> str:
    """The sha256 of a run's settings, its data, and the weights it begins with."""
    digest = hashlib.sha256(settings.encode())
    for each in data:
        digest.update(each)
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()
