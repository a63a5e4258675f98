"""The precision that a model answers in: chosen once, and entered around each batch."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, get_args

import torch
from torch import nn

from tidybert.catalog import find_model
from tidybert.errors import ConfigError, UsageError, param
from tidybert.modeling.architectures import encoder_of
from tidybert.modeling.kernels.answer_layers import plan_answers, use_int8
from tidybert.storage.json_objects import read_json_object
from tidybert.storage.model_files import ARGUMENTS_FILE, RECORD
from tidybert.training.precision import is_mixed

_LOGGER: Final = logging.getLogger(__name__)

AnswerPrecision = Literal["auto", "float32", "bfloat16", "float16", "int8"]
ANSWER_PRECISIONS: Final = get_args(AnswerPrecision)


def prepare_precision(
    precision: str, network: nn.Module, model: str | Path, device: torch.device
) -> str:
    """What ``choose_precision`` gives, with the network of MODEL made ready for it.

    On a CPU its encoder plans its passes over few rows.  For int8 it replaces the encoder's layers,
    in place.  Where a processor has no 8-bit products,
    or the weights do not fit into them, the answers are float32, which a warning in the log says:
    they are exact, and only slower.  Raises UsageError also for int8 of a language model.
    """
    chosen = choose_precision(precision, model, device)
    if device.type == "cpu":
        plan_answers(network)
    if chosen != "int8":
        return chosen
    if encoder_of(network).is_causal:
        raise UsageError(
            f"{param('precision', 'int8')} is for a BERT, and {model} is a language model: use "
            "float32"
        )
    obstacle = use_int8(network)
    if obstacle is None:
        return chosen
    _LOGGER.warning(f"precision: float32 in place of int8, because {obstacle}")
    return "float32"


def choose_precision(precision: str, model: str | Path, device: torch.device) -> str:
    """float32, bfloat16, float16 or int8, for a MODEL on a device.

    auto is bfloat16 on CUDA if the MODEL was trained in it, as its arguments.json says, and float32
    elsewhere.  Raises UsageError for another name, and for a precision that the device lacks.
    """
    if precision not in ANSWER_PRECISIONS:
        raise UsageError(
            f"{param('precision', precision)}: expected one of {', '.join(ANSWER_PRECISIONS)}"
        )
    if precision == "float16" and device.type != "cuda":
        raise UsageError(
            f"{param('precision', 'float16')} needs a CUDA device, and the model is on {device}: "
            "use float32, or auto"
        )
    if precision == "int8" and device.type != "cpu":
        raise UsageError(
            f"{param('precision', 'int8')} needs a CPU, and the model is on {device}: add "
            f"{param('device', 'cpu')}, or use auto"
        )
    if precision == "bfloat16":
        is_mixed(precision, device)
    if precision != "auto":
        return precision
    was_mixed = _was_trained_in_bfloat16(find_model(model))
    found = as_trained("auto" if was_mixed else "float32", device)
    known = "" if was_mixed else " not known to be"
    why = f"the device is {device} and training was{known} in bfloat16"
    _LOGGER.info(f"precision of answers: {found}, because {why}")
    return found


def as_trained(precision: str, device: torch.device) -> str:
    """The precision that a model answers in right after a training with this ``precision``.

    A CPU answers in float32 whatever training was in: it is as exact as training's own weights.
    """
    return "bfloat16" if device.type == "cuda" and is_mixed(precision, device) else "float32"


@contextmanager
def answering_in(precision: str, device: torch.device) -> Iterator[None]:
    """The context of a forward pass without gradients, in each of its threads.

    On CUDA, products of float32 take TF32: their factors have 10 bits after the point.
    """
    # The layers of int8 take and give float32.
    if precision not in ("float32", "int8"):
        with (
            torch.inference_mode(),
            # On a CPU all threads would share autocast's cache of the weights.
            torch.autocast(
                device.type, getattr(torch, precision), cache_enabled=device.type != "cpu"
            ),
        ):
            yield
        return
    with torch.inference_mode():
        if device.type != "cuda":
            yield
            return
        products = torch.backends.cuda.matmul
        before = products.fp32_precision
        products.fp32_precision = "tf32"
        try:
            yield
        finally:
            products.fp32_precision = before


def _was_trained_in_bfloat16(directory: Path) -> bool:
    try:
        arguments = read_json_object(directory / ARGUMENTS_FILE)
    except (ConfigError, OSError):
        return False
    record = arguments.get(RECORD)
    device = record.get("device") if isinstance(record, dict) else None
    precision = arguments.get("precision")
    return precision == "bfloat16" or (precision == "auto" and str(device).startswith("cuda"))
