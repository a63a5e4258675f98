"""One table between our parameter names and Hugging Face's, read in both directions.

Each of our names maps to one of theirs, or to three (query, key, value), whose rows it holds in
this order.  In both, the encoder's names may begin with ``bert.``; those of heads never do.  The
names are those of transformers' models/bert/modeling_bert.py.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from tidybert.configuration import BertConfig
from tidybert.errors import WeightsError

PREFIX = "bert."

# Modules with a weight and a bias, ours to theirs.
_LAYER_MODULES = {
    "attention.query_key_value": (
        "attention.self.query",
        "attention.self.key",
        "attention.self.value",
    ),
    "attention.output": ("attention.output.dense",),
    "attention_layer_norm": ("attention.output.LayerNorm",),
    "intermediate": ("intermediate.dense",),
    "output": ("output.dense",),
    "output_layer_norm": ("output.LayerNorm",),
}
_HEAD_MODULES = {
    "mlm.dense": "cls.predictions.transform.dense",
    "mlm.layer_norm": "cls.predictions.transform.LayerNorm",
    "nsp": "cls.seq_relationship",
    "classifier": "classifier",
    "qa_outputs": "qa_outputs",
}
_MLM_BIAS = "cls.predictions.bias"
# Of language models, which transformers does not open.
_OUTPUT_BIAS = "lm_head.bias"

_WORD_EMBEDDINGS = "embeddings.word_embeddings.weight"
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
    names: dict[str, tuple[str, ...]] = {
        f"embeddings.{kind}_embeddings.weight": (f"embeddings.{kind}_embeddings.weight",)
        for kind in ("word", "position", "token_type")
    }
    modules: dict[str, tuple[str, ...]] = {"embeddings.layer_norm": ("embeddings.LayerNorm",)}
    for i in range(config.num_hidden_layers):
        for ours, theirs in _LAYER_MODULES.items():
            modules[f"encoder.layers.{i}.{ours}"] = tuple(
                f"encoder.layer.{i}.{name}" for name in theirs
            )
    modules["pooler.dense"] = ("pooler.dense",)
    return MappingProxyType(names | _with_parameters(modules))


@lru_cache(maxsize=1)
def head_names() -> Mapping[str, tuple[str, ...]]:
    """Our names to theirs for the parameters of every head."""
    names = _with_parameters({ours: (theirs,) for ours, theirs in _HEAD_MODULES.items()})
    return MappingProxyType(names | {"mlm.bias": (_MLM_BIAS,), "output_bias": (_OUTPUT_BIAS,)})


def huggingface_names(name: str, config: BertConfig) -> tuple[str, ...]:
    """Their one or three names for our parameter ``name``, with its prefix if it has one.

    Raises:
        WeightsError: the table has no such parameter.
    """
    bare = name.removeprefix(PREFIX)
    prefix = name[: len(name) - len(bare)]
    theirs = encoder_names(config).get(bare) or (None if prefix else head_names().get(bare))
    if theirs is None:
        raise WeightsError(f"the parameter {name!r} has no name in a Hugging Face BERT")
    return tuple(prefix + name for name in theirs)


def from_huggingface(tensors: Mapping[str, Tensor], config: BertConfig) -> Converted:
    """Rename a Hugging Face state dict to our names, with its prefixes.

    Reads LayerNorm.gamma and .beta as .weight and .bias.  Drops the decoder after checking that it
    is the word embeddings.  Ignores layers beyond ``config.num_hidden_layers``.

    Raises:
        WeightsError: query, key and value are incomplete or not (H, H) and (H,); a tensor has two
            names; the decoder is not the word embeddings.
    """
    left = _modern_names(tensors)
    _fold_decoder(left)
    converted: dict[str, Tensor] = {}
    for prefix in (PREFIX, ""):
        for ours, theirs in encoder_names(config).items():
            names = [prefix + name for name in theirs]
            if any(name in left for name in names):
                converted[prefix + ours] = _joined(left, names, config)
    for ours, (theirs_alone,) in head_names().items():
        if theirs_alone in left:
            converted[ours] = left.pop(theirs_alone)
    for name in converted:
        if PREFIX + name in converted:
            raise WeightsError(f"{name!r} appears both with and without the prefix {PREFIX!r}")
    return Converted(converted, tuple(sorted(left)))


def to_huggingface(tensors: Mapping[str, Tensor], config: BertConfig) -> dict[str, Tensor]:
    """Rename our state dict to Hugging Face's names; the inverse of ``from_huggingface``.

    Leaves out the tied decoder, like transformers.  The query, key and value tensors are views of
    ours.

    Raises:
        WeightsError: the table lacks a parameter.
    """
    converted: dict[str, Tensor] = {}
    for ours, tensor in tensors.items():
        names = huggingface_names(ours, config)
        converted.update(zip(names, tensor.chunk(len(names)), strict=True))
    return converted


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


def _fold_decoder(left: dict[str, Tensor]) -> None:
    """Remove the decoder from ``left`` after checking that it repeats other tensors."""
    weight = left.pop(_DECODER_WEIGHT, None)
    words = left.get(PREFIX + _WORD_EMBEDDINGS, left.get(_WORD_EMBEDDINGS))
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
