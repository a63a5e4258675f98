"""Steps of training timed: the clock on their device, warm-up, and the profile of the last steps.

A GPU runs behind Python.  So an event in its stream marks the end of a step, and the clock is read
only after all steps.  ``torch.profiler`` sees every kernel, but slows the launches down: it watches
steps of their own, after those that are timed.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any, Final

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.harness import processes, script

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
        self._ends: list[Any] = []
        self._num_ended = 0
        self._profiler: profile | None = None
        self._operations: Sequence[Any] = ()

    def step_ended(self) -> None:
        """Call this after each step, once all its work is launched."""
        self._num_ended += 1
        if self._num_ended <= self._num_timed:
            self._ends.append(self._mark())
        if not self._num_profiled:
            return
        if self._num_ended == self._num_timed:
            wait_for(self._device)
            self._profiler = _profiler(self._device)
            self._profiler.start()
        elif self._num_ended == self._num_timed + self._num_profiled and self._profiler:
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
        profiled = None
        if self._operations:
            profiled = profile_of(self._operations, self._device, self._num_profiled)
        return {"step_seconds": seconds, "profile": profiled}

    def _mark(self) -> Any:
        if self._device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event


def warm_up_steps(step_seconds: Sequence[float], device: torch.device) -> int:
    """How many of the first steps do not count; ``step_seconds`` begins with the second step's.

    UNTIMED_STEPS on a CPU.  A GPU raises its clocks under load: there they are the steps until the
    median of _WINDOW steps is within _TOLERANCE of that of the steps before, at most
    MOST_WARM_UP_STEPS and at most half of all steps.
    """
    if device.type != "cuda":
        return UNTIMED_STEPS
    most = max(UNTIMED_STEPS, min(MOST_WARM_UP_STEPS, (len(step_seconds) + 1) // 2))
    for steps in range(UNTIMED_STEPS, most):
        later = step_seconds[max(0, steps - 1 - _WINDOW) : steps - 1]
        earlier = step_seconds[max(0, steps - 1 - 2 * _WINDOW) : max(0, steps - 1 - _WINDOW)]
        if len(earlier) == _WINDOW and are_close(
            statistics.median(earlier), statistics.median(later)
        ):
            return steps
    return most


def are_close(one: float, other: float) -> bool:
    """Whether two times are equal to a few percent."""
    return abs(one - other) <= _TOLERANCE * min(one, other)


def wait_for(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


# --- profiles


def _profiler(device: torch.device) -> profile:
    more = [ProfilerActivity.CUDA] if device.type == "cuda" else []
    return profile(activities=[ProfilerActivity.CPU, *more])


def profile_once(work: Callable[[], object], device: torch.device) -> dict[str, Any]:
    """What ``profile_of`` says of one call of ``work``."""
    wait_for(device)
    with _profiler(device) as found:
        work()
        wait_for(device)
    return profile_of(found.key_averages(), device, 1)


def profile_of(operations: Sequence[Any], device: torch.device, num_steps: int) -> dict[str, Any]:
    """A step in figures, from the profiler's averages over ``num_steps`` steps.

    Returns {"product_seconds" (in products and attention), "busy_seconds" (in all operations),
    "launches" (of kernels; None on a CPU), "synchronisations" (calls in which the host waits for
    the device; None on a CPU), "busiest" (the ten operations with the most time: name, seconds,
    calls)}, all for each step.
    """
    on_cuda = device.type == "cuda"

    def seconds(one: Any) -> float:
        found = one.self_device_time_total if on_cuda else one.self_cpu_time_total
        return float(found) / 1e6 / num_steps

    def calls(*parts: str) -> float | None:
        counts = [one.count for one in of_host if any(part in one.key for part in parts)]
        return sum(counts) / num_steps if on_cuda else None

    def is_product(name: str) -> bool:
        """Attention is two products."""
        last = name.rpartition("::")[2]
        return last in _PRODUCTS or any(part in name for part in _PARTS_OF_PRODUCTS)

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


def with_share(profiled: Mapping[str, Any], seconds_per_step: float) -> dict[str, Any]:
    """A profile with "share_outside_products": of a step, without products and attention.

    On a GPU it includes idle time: kernels take no longer under the profiler, and
    ``seconds_per_step`` is the time without it.  On a CPU the profiler slows all operations down,
    so it is a share of their sum.
    """
    whole = profiled["busy_seconds"] if profiled["launches"] is None else seconds_per_step
    return {**profiled, "share_outside_products": 1 - profiled["product_seconds"] / whole}


def remarks_of(result: Mapping[str, Any], of_what: str, *, in_full: bool) -> Iterator[str]:
    """Lines on the warm-up, the share of the peak, and the profile of ``of_what`` ("a step").

    ``in_full``: also launches, synchronisations and the operations that take the most time.
    """
    for side, number in result.get("warm_up_steps", {}).items():
        yield f"steps before the clock, {NAMES.get(side, side)}: {number}"
    for side, share in result["mfu"].items():
        if share is not None:
            yield f"fraction of the device's peak, {NAMES.get(side, side)}: {share:.1%}"
    for side, found in result["profile"].items():
        name = NAMES.get(side, side)
        yield f"time outside products, {name}: {found['share_outside_products']:.1%}"
        if in_full and found["launches"] is not None:
            yield (
                f"{of_what}, {name}: {found['launches']:,.0f} kernel launches, "
                f"{found['synchronisations']:,.0f} synchronisations"
            )
        for operation, seconds, calls in found["busiest"] if in_full else ():
            yield f"  {1e3 * seconds:10.3f} ms {calls:8,.0f} times  {operation[:50]}"


# --- a speed of training


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

    Each measurement is a process of its own, so that its peak memory is its own and neither side
    warms the other's caches.  ``function`` measures a side there, and returns what StepClock found
    and {"step_counts" (what each step read), "peak_rate" (of the device, None where not known),
    "threads"}.

    ``samples``, ``medians`` and ``ratios`` are as ``summarize`` gives them, of the quantities
    UNIT_per_second, seconds_per_step and peak_mib.  ``found`` is what each side's function returned
    in its last round; ``warm_up_steps`` (or the ``untimed`` ones) and ``profile`` are of that round
    too.  ``mfu`` is each side's share of the device's peak; None where the peak is not known.
    """
    found: dict[str, dict[str, Any]] = {}
    warm_up: dict[str, int] = {}

    def one_round(side: str) -> tuple[Mapping[str, float], str]:
        found[side] = one = processes.run_apart(function, side, asdict(work), work.threads)
        first = untimed or warm_up_steps(one["step_seconds"], torch.device(work.device))
        warm_up[side] = first
        seconds = one["step_seconds"][first - 1 :]
        rate = sum(one["step_counts"][first : first + len(seconds)]) / sum(seconds)
        values = {f"{unit}_per_second": rate, "seconds_per_step": sum(seconds) / len(seconds)}
        return {**values, "peak_mib": one["peak_mib"]}, f"{rate:,.0f} {unit}/s"

    summary = script.summarize(script.take_rounds(sides, rounds, one_round))
    medians, peak = summary["medians"], found[sides[0]]["peak_rate"]
    rates = {side: one[f"{unit}_per_second"] for side, one in medians.items()}
    return {
        "work": asdict(work),
        "rounds": rounds,
        "threads": found[sides[0]]["threads"],
        **summary,
        "warm_up_steps": warm_up,
        "mfu": {side: rate / peak if peak else None for side, rate in rates.items()},
        "profile": {
            side: with_share(one["profile"], medians[side]["seconds_per_step"])
            for side, one in found.items()
            if one.get("profile")
        },
        "found": found,
    }


def add_training_flags(
    parser: argparse.ArgumentParser, *, steps: int, least: int, what: str, dropout: float | None
) -> None:
    """The flags of both trainings."""
    script.add_against(parser, (*script.SIDES[1:], script.FLASH_SIDE))
    script.add_flags(parser, "rounds json device threads profile")
    parser.add_argument("--steps", type=script.at_least(least), default=steps, help=what)
    parser.add_argument("--precision", default="auto", help="auto, float32 or bfloat16")
    parser.add_argument("--dropout", type=float, default=dropout, help="on both sides")


def settings_of(given: argparse.Namespace) -> dict[str, Any]:
    """The settings of a work that these flags say."""
    return {
        "precision": given.precision,
        "device": given.device,
        "threads": given.threads,
        "attention": "flash_attention_2" if given.against == script.FLASH_SIDE else "sdpa",
        "profiled_steps": _PROFILED_STEPS * given.profiled,
    }


def print_training(
    title: str,
    result: Mapping[str, Any],
    unit: str,
    remarks: Sequence[str],
    given: argparse.Namespace,
) -> None:
    """Print what ``time_steps`` found; ``unit`` is as the first row names it."""
    rows = {
        f"{unit}/s": f"{unit.split()[-1]}_per_second",
        "seconds a step": "seconds_per_step",
        "peak MiB" if given.device == "cpu" else "peak MiB of the GPU": "peak_mib",
    }
    remarks = [*remarks, *remarks_of(result, "a step", in_full=given.profile)]
    script.print_speed(title, result, rows, remarks, as_json=given.json)
