"""Tensors under Hugging Face's names into a model: match the names, check the shapes, copy.

``UndrawnWeights`` builds such a model without drawing numbers only to replace them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from tidybert.checkpoints.conversion import PREFIX, from_huggingface, huggingface_names
from tidybert.configuration import BertConfig
from tidybert.errors import WeightsError
from tidybert.modeling.heads import BertForPreTraining

# An encoder needs all of these from the file; a head or the pooler may be new.
_ENCODER = ("embeddings.", "encoder.")
_POOLER = "pooler."


@dataclass(frozen=True)
class LoadReport:
    """The fate of each tensor when weights were loaded into a model.

    Args:
        source: the directory.
        loaded: names in the file of the tensors that the model took.
        new: names in the model of the parameters that the file lacks, left as they were.
        ignored: names in the file of the tensors that the model did not take; in words, and with
            their number, the variables of an optimizer.
        num_parameters: number of values loaded.
    """

    source: str
    loaded: tuple[str, ...]
    new: tuple[str, ...]
    ignored: tuple[str, ...]
    num_parameters: int

    def summary(self) -> str:
        """One line: what was loaded, what is new and what was ignored."""
        return (
            f"loaded {len(self.loaded)} tensors ({self.num_parameters / 1e6:.1f} M parameters) "
            f"from {self.source}; new: {_shortened(self.new)}; ignored: {_shortened(self.ignored)}"
        )


def load_weights(
    model: nn.Module,
    stored: Mapping[str, Tensor],
    config: BertConfig,
    *,
    source: str,
    new_head: bool = False,
) -> LoadReport:
    """Copy tensors into ``model``; nothing is copied unless everything fits.

    Args:
        model: an encoder or a model with a head; its state dict has the encoder's names bare or
            after ``bert.``, and ``stored`` may have them either way.
        stored: the file's tensors under Hugging Face's names.
        config: the file's own.
        source: where the tensors come from; begins the message of an error.
        new_head: leave the heads of ``model`` as they are, even if ``stored`` has some.

    Raises:
        WeightsError: ``from_huggingface`` refuses, a tensor of embeddings or encoder is missing, or
            a shape does not fit.
    """
    parameters = model.state_dict()
    tensors, unknown = from_huggingface(stored, config)
    sources = {name.removeprefix(PREFIX): name for name in tensors}
    ours: dict[str, str] = {}
    new: list[str] = []
    missing: list[str] = []
    for key in parameters:
        bare = key.removeprefix(PREFIX)
        if bare in sources and not (new_head and _is_head(bare)):
            ours[sources[bare]] = key
        else:
            (missing if bare.startswith(_ENCODER) else new).append(key)
    if missing:
        raise WeightsError(
            f"{source}: the encoder's weights are incomplete: the file lacks "
            f"{_shortened(missing)}; its own configuration has {config.num_hidden_layers} layers"
        )
    for name, key in ours.items():
        if not tensors[name].is_floating_point():
            raise WeightsError(
                f"{source}: {' + '.join(huggingface_names(name, config))} has the dtype "
                f"{tensors[name].dtype}; weights are floating-point numbers"
            )
        if tensors[name].shape != parameters[key].shape:
            advice = "build the model from the configuration in that directory"
            if _is_head(key.removeprefix(PREFIX)):
                advice = "to train another head on these weights, load them with new_head=True"
            raise WeightsError(
                f"{source}: {' + '.join(huggingface_names(name, config))} has the shape "
                f"{tuple(tensors[name].shape)}, but {key} of the model has "
                f"{tuple(parameters[key].shape)}; {advice}"
            )
    with torch.no_grad():
        for name, key in ours.items():
            parameters[key].copy_(tensors[name])
    left = [name for name in tensors if name not in ours]
    loaded, ignored = (
        tuple(theirs for name in names for theirs in huggingface_names(name, config))
        for names in (ours, left)
    )
    return LoadReport(
        source=source,
        loaded=loaded,
        new=tuple(new),
        ignored=ignored + unknown,
        num_parameters=sum(parameters[key].numel() for key in ours.values()),
    )


def check_weights(stored: Mapping[str, Tensor], config: BertConfig, *, source: str) -> None:
    """Raise WeightsError for an encoder or pre-training heads that ``load_weights`` refuses."""
    with torch.device("meta"):
        model = BertForPreTraining(config)
    # Copies nothing, for the model has no memory; checks every name, shape and dtype.
    load_weights(model, stored, config, source=source)


def _is_head(bare: str) -> bool:
    return not bare.startswith((*_ENCODER, _POOLER))


def _shortened(names: Sequence[str]) -> str:
    if not names:
        return "none"
    shown = ", ".join(names[:4])
    return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more"


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
