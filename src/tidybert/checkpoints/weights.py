"""One table between our parameter names and Hugging Face's, read in both directions.

Each of our names maps to one of theirs, or to three (query, key, value), whose rows it holds in
this order.  In both, the encoder's names may begin with ``bert.``; those of heads never do.  The
encoder's are in ``configuration.family``, those of heads in ``modeling.heads``.  A relative calls
its heads and its encoder otherwise: ``Family`` has the names, which some have in one class alone.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from tidybert.configuration import PREFIX, BertConfig
from tidybert.errors import WeightsError
from tidybert.modeling.heads import HEAD_PARTS, BertForPreTraining

_MLM_BIAS = "cls.predictions.bias"

_WORD_EMBEDDINGS = "embeddings.word_embeddings.weight"
_POSITIONS = "embeddings.position_embeddings.weight"
_DECODER_WEIGHT = "cls.predictions.decoder.weight"
_DECODER_BIAS = "cls.predictions.decoder.bias"
# Old versions of transformers stored these counters (0, 1, 2, ...) among the weights.
_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")


class Converted(NamedTuple):
    """Tensors under our names, and the names in the file that the table lacks."""

    tensors: dict[str, Tensor]
    ignored: tuple[str, ...]


@lru_cache(maxsize=4)
def encoder_names(config: BertConfig) -> Mapping[str, tuple[str, ...]]:
    """Our names to theirs for embeddings, encoder and pooler: no prefix, in model order."""
    names: dict[str, tuple[str, ...]] = {}
    layers = config.num_hidden_layers
    for ours, theirs in config.family.modules.items():
        for number in range(layers if "{}" in ours else 1):
            name = ours.format(number, last=layers - 1)
            names[name] = tuple(each.format(number) for each in theirs)
    return MappingProxyType(_with_parameters(names))


@lru_cache(maxsize=1)
def head_names() -> Mapping[str, tuple[str, ...]]:
    """Our names to theirs for the parameters of every head."""
    names: dict[str, tuple[str, ...]] = {}
    for part in HEAD_PARTS:
        names |= _with_parameters({ours: (theirs,) for ours, theirs in part.modules.items()})
        names |= {ours: (theirs,) for ours, theirs in part.parameters.items()}
    return MappingProxyType(names)


def huggingface_names(name: str, config: BertConfig, architecture: str = "") -> tuple[str, ...]:
    """Their one or three names for our parameter ``name``, with its prefix if it has one.

    ``architecture``: BERT's name of the class that has it.
    """
    return tuple(
        config.family.written_name(each, architecture) for each in _berts_names(name, config)
    )


def _berts_names(name: str, config: BertConfig) -> tuple[str, ...]:
    """The same where heads and encoder are called as BERT's."""
    bare = name.removeprefix(PREFIX)
    prefix = name[: len(name) - len(bare)]
    theirs = encoder_names(config).get(bare) or (None if prefix else head_names().get(bare))
    if theirs is None:
        raise WeightsError(f"the parameter {name!r} has no name in a Hugging Face BERT")
    return tuple(prefix + name for name in theirs)


def from_huggingface(
    tensors: Mapping[str, Tensor], config: BertConfig, architecture: str = ""
) -> Converted:
    """Rename a Hugging Face state dict to our names, with its prefixes.

    Reads LayerNorm.gamma and .beta as .weight and .bias.  Drops the decoder after checking that it
    is the word embeddings.  Ignores layers beyond ``config.num_hidden_layers``.
    """
    left = _modern_names(
        {config.family.berts_name(name, architecture): each for name, each in tensors.items()}
    )
    (words,) = encoder_names(config)[_WORD_EMBEDDINGS]
    _fold_decoder(left, words)
    converted: dict[str, Tensor] = {}
    for prefix in (PREFIX, ""):
        for ours, theirs in encoder_names(config).items():
            names = [prefix + name for name in theirs]
            if any(name in left for name in names):
                converted[prefix + ours] = _joined(left, names, config)
        if prefix + _POSITIONS in converted:
            rows = converted[prefix + _POSITIONS]
            converted[prefix + _POSITIONS] = rows[config.first_position :]
    for ours, (theirs_alone,) in head_names().items():
        if theirs_alone in left:
            converted[ours] = left.pop(theirs_alone)
    for name in converted:
        if PREFIX + name in converted:
            raise WeightsError(f"{name!r} appears both with and without the prefix {PREFIX!r}")
    ignored = (config.family.written_name(name, architecture) for name in left)
    return Converted(converted, tuple(sorted(ignored)))


def without_prefix(
    tensors: Mapping[str, Tensor], config: BertConfig, source: str
) -> tuple[dict[str, Tensor], str]:
    """The tensors of an encoder in a larger model, and what stood before their names.

    DataParallel writes ``module.``, Lightning often ``model.``.  Tensors that are not below it keep
    their names.  Raises WeightsError, which begins with ``source``, for two encoders in one file.
    """
    (words,), own = encoder_names(config)[_WORD_EMBEDDINGS], f"{config.family.encoder}."
    places = [name for name in tensors if name.endswith(words)]
    prefixes = {each.removesuffix(words).removesuffix(own) for each in places}
    if len(prefixes) > 1:
        raise WeightsError(
            f"{source}: word embeddings of {len(prefixes)} encoders, below "
            f"{', '.join(repr(each) for each in sorted(prefixes))}: write one of them into a file "
            "of its own"
        )
    prefix = next(iter(prefixes), "")
    return {name.removeprefix(prefix): each for name, each in tensors.items()}, prefix


def to_huggingface(
    tensors: Mapping[str, Tensor], config: BertConfig, architecture: str = ""
) -> dict[str, Tensor]:
    """Rename our state dict to Hugging Face's names; the inverse of ``from_huggingface``.

    Leaves out the tied decoder, like transformers.  The query, key and value tensors are views of
    ours.
    """
    return as_written(as_berts(tensors, config), config, architecture)


def as_berts(tensors: Mapping[str, Tensor], config: BertConfig) -> dict[str, Tensor]:
    """Rename our state dict to Hugging Face's names, heads and encoder called as BERT's."""
    converted: dict[str, Tensor] = {}
    for ours, tensor in tensors.items():
        names = _berts_names(ours, config)
        converted.update(zip(names, tensor.chunk(len(names)), strict=True))
    return converted


def as_written(
    tensors: Mapping[str, Tensor], config: BertConfig, architecture: str
) -> dict[str, Tensor]:
    """Rename tensors of ``as_berts`` to what the family calls them in a class."""
    written: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if config.first_position and name.endswith(_POSITIONS):
            tensor = functional.pad(tensor, (0, 0, config.first_position, 0))
        written[config.family.written_name(name, architecture)] = tensor
    return written


def _with_parameters(modules: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    return {
        f"{ours}.{parameter}": tuple(f"{name}.{parameter}" for name in theirs)
        for ours, theirs in modules.items()
        for parameter in ("weight", "bias")
    }


def _modern_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors without position buffers, gamma and beta renamed."""
    modern: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name.removeprefix(PREFIX) in _BUFFERS:
            continue
        renamed = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
        renamed = re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", renamed)
        if renamed in modern or (renamed != name and renamed in tensors):
            raise WeightsError(f"{name!r} and {renamed!r} are two names of one tensor")
        modern[renamed] = tensor
    return modern


def _fold_decoder(left: dict[str, Tensor], name: str) -> None:
    """Remove the decoder from ``left`` after checking that it repeats other tensors.

    ``name`` is that of the word embeddings.
    """
    weight = left.pop(_DECODER_WEIGHT, None)
    words = left.get(PREFIX + name, left.get(name))
    if weight is not None and words is not None and not _same(weight, words):
        raise WeightsError(
            f"{_DECODER_WEIGHT} differs from {_WORD_EMBEDDINGS}: BERT ties its decoder to the "
            f"embeddings, this model does not, so it cannot be read"
        )
    bias = left.pop(_DECODER_BIAS, None)
    if bias is not None and not _same(left.setdefault(_MLM_BIAS, bias), bias):
        raise WeightsError(f"{_DECODER_BIAS} differs from {_MLM_BIAS}, which is the same bias")


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool((a == b).all())


def _joined(left: dict[str, Tensor], names: list[str], config: BertConfig) -> Tensor:
    """Take ``names`` out of ``left``; stack three of them by rows."""
    missing = [name for name in names if name not in left]
    if missing:
        found = next(name for name in names if name in left)
        raise WeightsError(f"{found} is there without {', '.join(missing)}")
    parts = [left.pop(name) for name in names]
    if len(parts) == 1:
        return parts[0]
    expected = (config.hidden_size,) * (2 if names[0].endswith("weight") else 1)
    for name, part in zip(names, parts, strict=True):
        if part.shape != expected:
            raise WeightsError(
                f"{name} has the shape {tuple(part.shape)}; the configuration makes it {expected}"
            )
    return torch.cat(parts)


# Tensors under Hugging Face's names into a model: match the names, check the shapes, copy.
#
# ``UndrawnWeights`` builds such a model without drawing numbers only to replace them.

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
        notes: what else a user should know of the files, in words.
    """

    source: str
    loaded: tuple[str, ...]
    new: tuple[str, ...]
    ignored: tuple[str, ...]
    num_parameters: int
    notes: tuple[str, ...] = ()

    def summary(self) -> str:
        """One line: what was loaded, what is new and what was ignored."""
        return "; ".join((self._line(), *self.notes))

    def _line(self) -> str:
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
    architecture: str = "",
) -> LoadReport:
    """Give ``model`` these tensors; nothing changes unless everything fits.

    A parameter on the CPU becomes the tensor itself where that has its dtype and its own memory.
    """
    parameters = model.state_dict(keep_vars=True)
    tensors, unknown = from_huggingface(stored, config, architecture)
    sources = {name.removeprefix(PREFIX): name for name in tensors}
    ours: dict[str, str] = {}
    new: list[str] = []
    missing: list[str] = []
    for key in parameters:
        bare = key.removeprefix(PREFIX)
        source_name = sources.get(bare)
        begins = config.family.begins.get(bare, "")
        if source_name is None and begins not in parameters:
            source_name = sources.get(begins)
        if source_name is not None and not (new_head and _is_head(bare)):
            ours[source_name] = key
        else:
            (missing if bare.startswith(_ENCODER) else new).append(key)
    if missing:
        raise WeightsError(
            f"{source}: the encoder's weights are incomplete: the file lacks "
            f"{_shortened(missing)}; its own configuration has {config.num_hidden_layers} layers"
        )
    for name, key in ours.items():
        theirs = " + ".join(huggingface_names(name, config, architecture))
        if not tensors[name].is_floating_point():
            raise WeightsError(
                f"{source}: {theirs} has the dtype {tensors[name].dtype}; weights are "
                "floating-point numbers"
            )
        if tensors[name].shape != parameters[key].shape:
            advice = "build the model from the configuration in that directory"
            if _is_head(key.removeprefix(PREFIX)):
                advice = "to train another head on these weights, load them with new_head=True"
            raise WeightsError(
                f"{source}: {theirs} has the shape "
                f"{tuple(tensors[name].shape)}, but {key} of the model has "
                f"{tuple(parameters[key].shape)}; {advice}"
            )
    taken = set()
    with torch.no_grad():
        for name, key in ours.items():
            parameter, tensor = parameters[key], tensors[name]
            memory = tensor.untyped_storage()
            is_alike = (parameter.device, parameter.dtype) == (tensor.device, tensor.dtype)
            is_whole = memory.nbytes() == tensor.nbytes and tensor.is_contiguous()
            if is_alike and is_whole and memory.data_ptr() not in taken:
                parameter.data = tensor
                taken.add(memory.data_ptr())
            else:
                parameter.copy_(tensor)
    left = [name for name in tensors if name not in ours]
    loaded, ignored = (
        tuple(theirs for name in names for theirs in huggingface_names(name, config, architecture))
        for names in (ours, left)
    )
    return LoadReport(
        source=source,
        loaded=loaded,
        new=tuple(new),
        ignored=ignored + unknown,
        num_parameters=sum(parameters[key].numel() for key in ours.values()),
    )


def check_weights(
    stored: Mapping[str, Tensor], config: BertConfig, *, source: str, architecture: str = ""
) -> None:
    """Raise WeightsError for an encoder or pre-training heads that ``load_weights`` refuses."""
    with torch.device("meta"):
        model = BertForPreTraining(config)
    # Copies nothing, for the model has no memory; checks every name, shape and dtype.
    load_weights(model, stored, config, source=source, architecture=architecture)


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
