"""Steps of training timed: the clock on their device, warm-up, and the profile of the last steps.

A GPU runs behind Python: an event in its stream marks the end of a step.  ``torch.profiler`` slows
launches down, so it watches steps of their own, after those that are timed.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any, Final

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.harness import script
from tidybert.configuration import BertConfig
from tidybert.pretraining.throughput import flops_per_token, peak_flops

NAMES: Final = {"ours": "tidybert"}
UNTIMED_STEPS: Final = 3
"""The first steps of a training, in which libraries choose kernels and fetch memory."""
MOST_WARM_UP_STEPS: Final = 20
"""A GPU's steps that pass, at most, before its clocks count as stable."""
_PROFILED_STEPS: Final = 3
_WINDOW: Final = 4
_TOLERANCE: Final = 0.03
_PRODUCTS: Final = {"mm", "addmm", "bmm", "baddbmm", "mv", "addmv"}
_PARTS_OF_PRODUCTS: Final = ("attention", "flash_attn", "mkldnn::", "onednn::")


class StepClock:
    """Marks the ends of steps: the first ``num_timed`` count, the next run under the profiler."""

    def __init__(
        self, device: torch.device, num_timed: int | None = None, num_profiled: int = 0
    ) -> None:
        self._device = device
        self._num_timed = sys.maxsize if num_timed is None else num_timed
        self._num_profiled = num_profiled
        self._num_ended = 0
        self._ends: list[Any] = []
        self._profiler: Any = None
        self._operations: Sequence[Any] = ()

    def step_ended(self) -> None:
        """Call this after each step, once all its work is launched."""
        self._num_ended += 1
        if self._num_ended <= self._num_timed:
            end: Any = time.perf_counter()
            if self._device.type == "cuda":
                end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
                end.record(torch.cuda.current_stream(self._device))
            self._ends.append(end)
        if self._num_profiled and self._num_ended == self._num_timed:
            wait_for(self._device)
            more = [ProfilerActivity.CUDA] if self._device.type == "cuda" else []
            self._profiler = profile(activities=[ProfilerActivity.CPU, *more])
            self._profiler.start()
        elif self._num_profiled and self._num_ended == self._num_timed + self._num_profiled:
            wait_for(self._device)
            self._profiler.stop()
            self._operations = self._profiler.key_averages()

    def found(self) -> dict[str, Any]:
        """{"step_seconds", from the end of each timed step to that of the next, "profile"}."""
        wait_for(self._device)
        on_gpu = self._device.type == "cuda"
        seconds = [
            before.elapsed_time(after) / 1e3 if on_gpu else after - before
            for before, after in pairwise(self._ends)
        ]
        given = self._operations, self._device, self._num_profiled
        return {"step_seconds": seconds, "profile": profile_of(*given) if given[0] else None}


def warm_up_steps(step_seconds: Sequence[float], device: torch.device) -> int:
    """How many of the first steps do not count; ``step_seconds`` begins with the second step's.

    A GPU raises its clocks under load: there they are the steps until the medians of two windows
    are close, within MOST_WARM_UP_STEPS and half of all steps.
    """
    if device.type != "cuda":
        return UNTIMED_STEPS
    most = max(UNTIMED_STEPS, min(MOST_WARM_UP_STEPS, (len(step_seconds) + 1) // 2))
    for end in range(2 * _WINDOW, most - 1):
        windows = step_seconds[end - 2 * _WINDOW : end - _WINDOW], step_seconds[end - _WINDOW : end]
        if are_close(*map(statistics.median, windows)):
            return end + 1
    return most


def are_close(one: float, other: float) -> bool:
    """Whether two times are equal to a few percent."""
    return abs(one - other) <= _TOLERANCE * min(one, other)


def wait_for(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


# --- profiles
def profile_of(operations: Sequence[Any], device: torch.device, num_steps: int) -> dict[str, Any]:
    """A step's figures, from the profiler's averages over ``num_steps`` steps.

    Attention counts as products.  "launches" of kernels and "synchronisations", in which the host
    waits, are None on a CPU.
    """
    on_cuda = device.type == "cuda"

    def seconds(one: Any) -> float:
        found = one.self_device_time_total if on_cuda else one.self_cpu_time_total
        return float(found) / 1e6 / num_steps

    def calls(*parts: str) -> float | None:
        counts = [one.count for one in of_host if any(part in one.key for part in parts)]
        return sum(counts) / num_steps if on_cuda else None

    def is_product(name: str) -> bool:
        parts = any(part in name for part in _PARTS_OF_PRODUCTS)
        return parts or name.rpartition("::")[2] in _PRODUCTS

    # Kernels have entries of their own, beside those of the operations that launched them.
    of_host = [one for one in operations if one.device_type.name == "CPU"]
    of_device = [
        one for one in operations if one.device_type.name == "CUDA" and not one.is_user_annotation
    ]
    busiest = sorted(of_host, key=seconds, reverse=True)[:10]
    return {
        "product_seconds": sum(seconds(one) for one in of_host if is_product(one.key)),
        "busy_seconds": sum(map(seconds, of_device if on_cuda else of_host)),
        "launches": calls("LaunchKernel"),
        # The profiler itself waits for the whole device (cudaDeviceSynchronize), which is not ours.
        "synchronisations": calls("StreamSynchronize", "EventSynchronize"),
        "busiest": [[one.key, seconds(one), one.count / num_steps] for one in busiest],
    }


def profiles_of(
    found: Mapping[str, Mapping[str, Any]], seconds: Mapping[str, float]
) -> dict[str, Any]:
    """The sides' profiles with "share_outside_products", of a step without products and attention.

    On a GPU it includes idle time, and ``seconds`` are those without the profiler; on a CPU the
    profiler slows all down, so it is a share of their sum.
    """
    profiles = {}
    for side, one in found.items():
        if each := one.get("profile"):
            whole = each["busy_seconds"] if each["launches"] is None else seconds[side]
            share = 1 - each["product_seconds"] / whole
            profiles[side] = {**each, "share_outside_products": share}
    return profiles


def remarks_of(result: Mapping[str, Any], of_what: str, *, in_full: bool) -> Iterator[str]:
    """Lines on warm-up, share of the peak, and the profile of ``of_what``, ``in_full`` or not."""
    for side, number in result.get("warm_up_steps", {}).items():
        yield f"steps before the clock, {NAMES.get(side, side)}: {number}"
    for side, share in result["mfu"].items():
        if share is not None:
            yield f"fraction of the device's peak, {NAMES.get(side, side)}: {share:.1%}"
    for side, found in result["profile"].items():
        name = NAMES.get(side, side)
        yield f"time outside products, {name}: {found['share_outside_products']:.1%}"
        if in_full and found["launches"] is not None:
            launches, waits = found["launches"], found["synchronisations"]
            launched = f"{launches:,.0f} kernel launches, {waits:,.0f} synchronisations"
            yield f"{of_what}, {name}: {launched}"
        for operation, seconds, calls in found["busiest"] if in_full else ():
            yield f"  {1e3 * seconds:10.3f} ms {calls:8,.0f} times  {operation[:50]}"


# --- a speed of training
def peak_texts_per_second(
    config: BertConfig, lengths: Sequence[int], device: torch.device, *, mixed: bool
) -> float | None:
    """The training of texts of these lengths at a device's peak, without padding; None: unknown."""
    peak, sizes = peak_flops(device, mixed=mixed), np.array(lengths)
    # A token attends to its sequence, so long sequences count for more of attention.
    per_token = flops_per_token(config, (sizes**2).sum() / sizes.sum(), 0.0)
    return peak and float(peak / (per_token * sizes.mean()))


def time_steps(
    function: Callable[[str, dict[str, Any]], Mapping[str, Any]],
    work: Any,
    unit: str,
    *,
    sides: Sequence[str],
    rounds: int,
    untimed: int | None = None,
) -> dict[str, Any]:
    """Time the steps of a work (FinetuneWork, PretrainWork), which read ``unit``s, after a warm-up.

    ``function`` measures a side in a process of its own, and returns what StepClock found and
    {"step_counts" (what each step read), "peak_rate" (of the device, or None), "threads"}; of the
    last round that is in ``found``.
    """
    found: dict[str, dict[str, Any]] = {}
    warm_up: dict[str, int] = {}

    def one_round(side: str) -> Mapping[str, float]:
        found[side] = one = script.run_apart(function, side, asdict(work), work.threads)
        first = untimed or warm_up_steps(one["step_seconds"], torch.device(work.device))
        warm_up[side] = first
        seconds = one["step_seconds"][first - 1 :]
        rate = sum(one["step_counts"][first : first + len(seconds)]) / sum(seconds)
        values = {f"{unit}_per_second": rate, "seconds_per_step": sum(seconds) / len(seconds)}
        return {**values, "peak_mib": one["peak_mib"]}

    result = script.take_rounds(sides, rounds, one_round)
    peak = found[sides[0]]["peak_rate"]
    rates = {side: one[f"{unit}_per_second"] for side, one in result["medians"].items()}
    seconds = {side: one["seconds_per_step"] for side, one in result["medians"].items()}
    return {
        **result, "work": asdict(work), "threads": found[sides[0]]["threads"],
        "warm_up_steps": warm_up,
        "mfu": {side: rate / peak if peak else None for side, rate in rates.items()},
        "profile": profiles_of(found, seconds), "found": found,
    }  # fmt: skip


def parse_training(
    parser: argparse.ArgumentParser, names: str, *, steps: int, least: int, what: str
) -> argparse.Namespace:
    """Add the flags of both trainings, and read the command line."""
    script.add_against(parser)
    script.add_number(parser, "steps", steps, what, least)
    parser.add_argument("--precision", default="auto", help="float32, bfloat16 or, on a GPU, auto")
    parser.add_argument("--dropout", type=float, help="on both sides; default the model's own")
    given = script.parse(parser, f"rounds json device threads profile {names}")
    script.check_device(given)
    if given.precision == "auto" and given.device == "cpu":
        # A default of ours alone, which would compare two precisions.
        given.precision = "float32"
    return given


def settings_of(given: argparse.Namespace) -> dict[str, Any]:
    """The settings of a work that these flags say."""
    return {
        **{name: getattr(given, name) for name in ("precision", "device", "threads")},
        "profiled_steps": _PROFILED_STEPS * given.profiled,
    }


def print_training(
    given: argparse.Namespace,
    title: str,
    unit: str,
    result: Mapping[str, Any],
    remarks: Sequence[str] = (),
) -> None:
    """Print what ``time_steps`` found; ``unit`` is as the first row names it."""
    rows = {
        f"{unit}/s": f"{unit.split()[-1]}_per_second",
        "seconds a step": "seconds_per_step",
        "peak MiB" if given.device == "cpu" else "peak MiB of the GPU": "peak_mib",
    }
    remarks = [*remarks, *remarks_of(result, "a step", in_full=given.profile)]
    script.print_speed(given, title, result, rows, remarks)
