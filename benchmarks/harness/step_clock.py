"""The time of each step on its device, warm-up, and the profile of the last steps.

A GPU runs behind Python.  So an event in its stream marks the end of a step, and the clock is read
only after all steps.  ``torch.profiler`` sees every kernel, but slows the launches down: it watches
steps of their own, after those that are timed.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import torch
from torch.profiler import ProfilerActivity, profile

UNTIMED_STEPS: Final = 3
"""The first steps of a training, in which libraries choose kernels and fetch memory."""
MOST_WARM_UP_STEPS: Final = 20
"""A GPU's steps that pass, at most, before its clocks count as stable."""
PROFILED_STEPS: Final = 3
_WINDOW: Final = 4
_TOLERANCE: Final = 0.03

_PRODUCTS: Final = {"mm", "addmm", "bmm", "baddbmm", "mv", "addmv"}
_PARTS_OF_PRODUCTS: Final = ("attention", "flash_attn", "mkldnn::", "onednn::")


class StepClock:
    """Marks the ends of steps; the steps after ``num_timed`` run under the profiler.

    Args:
        device: where the steps run.
        num_timed: steps whose times count; None: all.
        num_profiled: steps after them that the profiler watches; 0 for none.
    """

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

    def step_seconds(self) -> list[float]:
        """Seconds from the end of each timed step to that of the next."""
        wait_for(self._device)
        if self._device.type == "cuda":
            return [before.elapsed_time(after) / 1e3 for before, after in pairwise(self._ends)]
        return [after - before for before, after in pairwise(self._ends)]

    def profile(self) -> dict[str, Any] | None:
        """What ``profile_of`` says of a profiled step; None where none was."""
        if not self._operations:
            return None
        return profile_of(self._operations, self._device, self._num_profiled)

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

    # Kernels have entries of their own, beside those of the operations that launched them.
    of_host = [one for one in operations if one.device_type.name == "CPU"]
    of_device = [
        one for one in operations if one.device_type.name == "CUDA" and not one.is_user_annotation
    ]
    busiest = sorted(of_host, key=seconds, reverse=True)[:10]
    return {
        "product_seconds": sum(seconds(one) for one in of_host if _is_product(one.key)),
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
        yield f"steps before the clock, {_name(side)}: {number}"
    for side, share in result["mfu"].items():
        if share is not None:
            yield f"fraction of the device's peak, {_name(side)}: {share:.1%}"
    for side, found in result["profile"].items():
        yield f"time outside products, {_name(side)}: {found['share_outside_products']:.1%}"
        if in_full and found["launches"] is not None:
            yield (
                f"{of_what}, {_name(side)}: {found['launches']:,.0f} kernel launches, "
                f"{found['synchronisations']:,.0f} synchronisations"
            )
        for name, seconds, calls in found["busiest"] if in_full else ():
            yield f"  {1e3 * seconds:10.3f} ms {calls:8,.0f} times  {name[:50]}"


def are_close(one: float, other: float) -> bool:
    """Whether two times are equal to a few percent."""
    return abs(one - other) <= _TOLERANCE * min(one, other)


def wait_for(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _name(side: str) -> str:
    return "tidybert" if side == "ours" else side


def _is_product(name: str) -> bool:
    """Whether an operation multiplies matrices; attention is two products."""
    return name.rpartition("::")[2] in _PRODUCTS or any(part in name for part in _PARTS_OF_PRODUCTS)


def _profiler(device: torch.device) -> profile:
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    return profile(activities=activities)
