"""The names of the original code's variables, in both directions, beside Hugging Face's.

Source: modeling.py, run_classifier.py, run_squad.py and optimization.py of google-research/bert.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from torch import Tensor

from tidybert.errors import WeightsError

# Theirs to Hugging Face's, for names that are not cut at "/" and translated part by part.
_WHOLE: Final = {
    "cls/predictions/output_bias": "cls.predictions.bias",
    "cls/seq_relationship/output_weights": "cls.seq_relationship.weight",
    "cls/seq_relationship/output_bias": "cls.seq_relationship.bias",
    "cls/squad/output_weights": "qa_outputs.weight",
    "cls/squad/output_bias": "qa_outputs.bias",
    "output_weights": "classifier.weight",
    "output_bias": "classifier.bias",
    **{
        f"bert/embeddings/{kind}_embeddings": f"bert.embeddings.{kind}_embeddings.weight"
        for kind in ("word", "position", "token_type")
    },
}
_WHOLE_BACK: Final = {theirs: ours for ours, theirs in _WHOLE.items()}
# The last part of every other name.  A kernel is (in, out), and its transpose the weight.
_KERNEL, _WEIGHT = "/kernel", ".weight"
_NORM: Final = {"/LayerNorm/gamma": ".LayerNorm.weight", "/LayerNorm/beta": ".LayerNorm.bias"}
_MODEL: Final = re.compile(r"(bert|cls)/.*(/kernel|/bias|/LayerNorm/gamma|/LayerNorm/beta)")
_OPTIMIZER: Final = re.compile(
    r"(.*/)?(adam_m|adam_v|global_step)(_\d+)?|.*/Adam(_1)?|beta[12]_power"
)


class Named(NamedTuple):
    """Variables under Hugging Face's names, and the names without one.

    Args:
        names: theirs to Hugging Face's.
        optimizer: of moments and of the step.
        unknown: the rest.
    """

    names: dict[str, str]
    optimizer: tuple[str, ...]
    unknown: tuple[str, ...]


def named(variables: Mapping[str, object]) -> Named:
    """Sort the names of a checkpoint."""
    names: dict[str, str] = {}
    optimizer, unknown = [], []
    for name in variables:
        if _OPTIMIZER.fullmatch(name):
            optimizer.append(name)
        elif name in _WHOLE:
            names[name] = _WHOLE[name]
        elif _MODEL.fullmatch(name):
            names[name] = _translated(name)
        else:
            unknown.append(name)
    return Named(names, tuple(optimizer), tuple(unknown))


def from_tensorflow(name: str, tensor: Tensor) -> Tensor:
    """A variable's tensor as Hugging Face has it."""
    return tensor.T.contiguous() if name.endswith(_KERNEL) else tensor


def to_tensorflow(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Hugging Face's tensors as the original code names and lays them.

    Raises WeightsError for a tensor that the original code does not have.
    """
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        theirs = _WHOLE_BACK.get(name) or _translated_back(name)
        if theirs is None:
            raise WeightsError(f"{name} has no name in a checkpoint of the original code")
        found[theirs] = tensor.T.contiguous() if theirs.endswith(_KERNEL) else tensor
    return found


def _translated(name: str) -> str:
    name = re.sub(r"/layer_(\d+)/", r"/layer/\1/", name)
    for theirs, ours in _NORM.items():
        name = name.replace(theirs, ours)
    return name.replace(_KERNEL, _WEIGHT).replace("/", ".")


def _translated_back(name: str) -> str | None:
    for theirs, ours in _NORM.items():
        name = name.replace(ours, theirs)
    name = re.sub(r"\.weight$", _KERNEL, name).replace(".", "/")
    name = re.sub(r"/layer/(\d+)/", r"/layer_\1/", name)
    return name if _MODEL.fullmatch(name) else None
