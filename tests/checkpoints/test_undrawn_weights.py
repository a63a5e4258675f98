"""Models are built for weights that are read: no number is drawn."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tidybert.checkpoints.undrawn_weights import UndrawnWeights
from tidybert.configuration import BertConfig
from tidybert.modeling import BertForPreTraining


class Called(TorchDispatchMode):
    """Lists the operations that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(str(func))
        return func(*args, **(kwargs or {}))


def names_of(build: Callable[[], nn.Module]) -> set[str]:
    with Called() as called:
        build()
    return {name.split(".")[1].rstrip("_") for name in called.names}


def test_nothing_is_drawn(tiny_config: Callable[..., BertConfig]) -> None:
    def build() -> nn.Module:
        with torch.device("meta"):
            model = nn.Sequential(BertForPreTraining(tiny_config()), nn.Linear(2, 3))
        return model.to_empty(device="cpu")

    draws = {"normal", "uniform", "empty_like"}
    assert names_of(build) & draws, "the test sees no draws"

    with UndrawnWeights():
        assert not names_of(build) & draws
        model = build()

    assert {each.device.type for each in model.parameters()} == {"cpu"}
    assert {each.dtype for each in model.parameters()} == {torch.float32}
    drawn = torch.zeros(2).normal_()
    assert drawn.all()
