"""Models whose weights will be read: no number is drawn only to be replaced."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

_DRAWS: Final[frozenset[Callable[..., Any]]] = frozenset(
    (
        Tensor.normal_,
        Tensor.uniform_,
        nn.init.normal_,
        nn.init.uniform_,
        nn.init.kaiming_uniform_,
    )
)


class UndrawnWeights(TorchFunctionMode):
    """For a block that builds a module on the device meta and then calls its ``to_empty``.

    Nothing is drawn on that device in any case.  But for the first draw there, and for a tensor
    that is like one there, PyTorch loads its compiler, which takes two seconds.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        if func in _DRAWS:
            return args[0] if args else given["tensor"]
        if func is torch.empty_like:
            return torch.empty(args[0].shape, dtype=args[0].dtype, **given)
        return func(*args, **given)
