"""Mixed precision: products in bfloat16 under autocast, weights and their updates in float32."""

import logging
import math
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from statistics import median
from typing import Final

import torch

from tidybert.errors import UsageError, param
from tidybert.modeling.kernels.linear import (
    PRODUCTS,
    Products,
    RoundedWeights,
    faster_products,
    linear,
    use_products,
)
from tidybert.modeling.kernels.processor import has, is_amd
from tidybert.storage.json_objects import read_json_object
from tidybert.storage.model_files import ARGUMENTS_FILE, RECORD
from tidybert.system.reporter import Reporter
from tidybert.training.runs.provenance import trained_in
from tidybert.training.training_arguments import Precision

_LOGGER: Final = logging.getLogger(__name__)
# A difference below this is noise.
_LOSES: Final = 1.1
# Blocks of usual_torch under way, in all threads, and the dtype outside of them.
_usual_lock: Final = threading.Lock()
_num_usual = 0
_dtype_outside = torch.float32


@contextmanager
def usual_torch() -> Iterator[None]:
    """Within the block PyTorch has the settings that it begins with, whatever the program set.

    These are the dtype and the device of new tensors, gradients, and inference mode.  Threads share
    the dtype, so the last block that ends sets it back.
    """
    global _num_usual, _dtype_outside
    with ExitStack() as stack:
        with _usual_lock:
            if not _num_usual:
                _dtype_outside = torch.get_default_dtype()
                torch.set_default_dtype(torch.float32)
            _num_usual += 1
        stack.callback(_leave_usual)
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        yield


def _leave_usual() -> None:
    global _num_usual
    with _usual_lock:
        _num_usual -= 1
        if not _num_usual:
            torch.set_default_dtype(_dtype_outside)


def is_mixed(precision: str, device: torch.device, width: int = 0) -> bool:
    """Whether steps run in bfloat16; auto: where the device suits a model of this width."""
    if precision == "float32":
        return False
    can = device.type == "cpu" or (device.type == "cuda" and _has_bfloat16(device))
    if precision == "bfloat16" and not can:
        raise UsageError(
            f"{param('precision', 'bfloat16')} needs a CPU or a CUDA device that has it, and the "
            f"model is on {device}: use float32, or auto"
        )
    if precision == "auto":
        if device.type == "cpu":
            can = width >= _LEAST_WIDTH[bfloat16_units()]
        _LOGGER.info(f"precision: {'bfloat16' if can else 'float32'}, which suits {device}")
    return can


_LEAST_WIDTH: Final = {"AMX": 256, "AVX-512 BF16": 768, None: math.inf}
"""Of a model that trains at least 1.3 times as fast in bfloat16, by the processor's units."""


def bfloat16_units() -> str | None:
    """What the processor multiplies bfloat16 with, where that is far faster than float32.

    Its flags decide, never a timing: results must not change from run to run.  AVX-512 BF16 was
    measured on AMD's processors alone (docs/performance.md).
    """
    if has("AMX"):
        return "AMX"
    return "AVX-512 BF16" if has("AVX-512 BF16") and is_amd() else None


def go_on_as_begun(run: Path | None, resume: bool) -> Precision | None:
    """What a run that goes on has computed in; this process multiplies as it did from here on.

    A new run takes the products that are faster here, and is None.
    """
    file = run / ARGUMENTS_FILE if run is not None and resume else None
    if file is None or not file.exists():
        use_products(faster_products())
        return None
    arguments = read_json_object(file)
    record = arguments.get(RECORD)
    known = record.get("products") if isinstance(record, dict) else None
    # Earlier versions took oneDNN's on any processor of AMD.
    before: Products = "onednn" if is_amd() else "default"
    use_products(next((each for each in PRODUCTS if each == known), before))
    return trained_in(arguments)


def decided(
    precision: str,
    device: torch.device,
    width: int,
    reporter: Reporter,
    before: Precision | None = None,
) -> Precision:
    """float32 or bfloat16: what a run computes in.

    Args:
        width: of the model.
        before: what it has computed in so far, which auto goes on with.
    """
    found: Precision = "bfloat16" if is_mixed(precision, device, width) else "float32"
    if precision != "auto":
        return found
    if before is not None and before != found:
        is_mixed(before, device)
        reporter.tell(f"precision: {before}, as the run began; a new run here takes {found}")
        return before
    if device.type == "cpu" and found == "bfloat16":
        reporter.tell(
            f"precision: bfloat16, for which this processor has {bfloat16_units()}; "
            f"{param('precision', 'float32')} is slower and has more digits"
        )
    return found


def _has_bfloat16(device: torch.device) -> bool:
    """Whether a CUDA device itself multiplies in bfloat16; before Ampere it is only emulated."""
    with torch.cuda.device(device):
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def note_slow_bfloat16(device: torch.device, mixed: bool, reporter: Reporter) -> None:
    """Note by how much bfloat16 on a CPU loses against float32, after a trial of both.

    The trial only notes; it never chooses, because results must not change from run to run.
    """
    if not mixed or device.type != "cpu" or bfloat16_units():
        return
    slower = _trial()
    if slower > _LOSES:
        reporter.tell(
            f"{param('precision', 'bfloat16')}: products take {slower:.1f} times as long as in "
            "float32 on this processor"
        )
    else:
        _LOGGER.info(f"precision: a trial of bfloat16 takes {slower:.2f} times float32's time")


@cache
def _trial() -> float:
    """How many times as long as in float32 a layer's products take in bfloat16 on this CPU.

    Forward and backward of 512 rows through 768 x 768, the median of five: under half a second.
    """
    # No random numbers: those of the training would be others.
    rows, weight = (torch.full(size, 0.5, requires_grad=True) for size in ((512, 768), (768, 768)))
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(6):
        for mixed, measured in seconds.items():
            begun = time.perf_counter()
            with autocast(torch.device("cpu"), mixed):
                found = linear(rows, weight, None)
            torch.autograd.grad(found.sum(), [rows, weight])
            measured.append(time.perf_counter() - begun)
    # The first of each prepares its kernels.
    return median(seconds[True][1:]) / median(seconds[False][1:])


@contextmanager
def autocast(
    device: torch.device, mixed: bool, weights: RoundedWeights | None = None
) -> Iterator[None]:
    """The context that a step's forward runs in, in each of its threads.

    On a CPU ``weights`` are the step's, rounded once for all its threads and parts.
    """
    # On a CPU all threads would share autocast's cache of the weights.
    keep = device.type != "cpu"
    shared = nullcontext() if weights is None or not mixed or keep else weights.in_use()
    with torch.autocast(device.type, torch.bfloat16, enabled=mixed, cache_enabled=keep), shared:
        yield
