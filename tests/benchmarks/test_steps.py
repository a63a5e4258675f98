"""The clock of steps: times between ends, warm-up, and what a profile says of a step."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks.harness import steps
from benchmarks.harness.steps import (
    MOST_WARM_UP_STEPS,
    UNTIMED_STEPS,
    StepClock,
    profile_of,
    profiles_of,
    remarks_of,
    warm_up_steps,
)

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def test_a_steps_time_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = iter([1.0, 1.5, 3.0])
    monkeypatch.setattr(steps, "time", SimpleNamespace(perf_counter=lambda: next(ends)))
    clock = StepClock(CPU)
    for _ in range(3):
        clock.step_ended()

    assert clock.found()["step_seconds"] == [0.5, 1.5]
    assert clock.found()["profile"] is None


def test_on_a_gpu_events_of_its_stream_mark_the_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self, stream: str) -> None:
            calls.append(stream)
            self.number = len(calls)

        def elapsed_time(self, later: "Event") -> float:
            """Milliseconds."""
            assert calls[-1] == "waited"
            return 250.0 * (later.number - self.number)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _device: "stream")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _device: calls.append("waited"))
    clock = StepClock(CUDA)
    for _ in range(3):
        clock.step_ended()

    # No step waits for the device.
    assert calls == ["stream"] * 3
    assert clock.found()["step_seconds"] == [0.25, 0.25]


def test_the_last_steps_are_profiled_and_not_timed() -> None:
    clock = StepClock(CPU, num_timed=3, num_profiled=2)
    ones = torch.ones(4, 4)
    for _ in range(5):
        for _ in range(7):
            torch.mm(ones, ones)
        clock.step_ended()

    assert len(clock.found()["step_seconds"]) == 2
    found = clock.found()["profile"]
    assert found is not None
    assert {name: calls for name, _, calls in found["busiest"]}["aten::mm"] == 7
    assert 0 < found["product_seconds"] <= found["busy_seconds"]
    assert found["launches"] is found["synchronisations"] is None


def operation(key: str, count: int, micros: float, where: str = "CPU", **more: Any) -> Any:
    """One of the profiler's averages: of host time on the host, of device time too."""
    return SimpleNamespace(
        key=key,
        count=count,
        device_type=SimpleNamespace(name=where),
        self_device_time_total=micros,
        self_cpu_time_total=0.0,
        **{"is_user_annotation": False, **more},
    )


def test_launches_and_waits_on_a_gpu_are_those_of_a_step() -> None:
    operations = [
        operation("aten::mm", 20, 600e3),
        operation("aten::_flash_attention_backward", 2, 100e3),
        operation("aten::add", 40, 300e3),
        operation("cudaLaunchKernel", 60, 0),
        operation("cuLaunchKernelEx", 2, 0),
        operation("cudaStreamSynchronize", 4, 0),
        # The profiler's own.
        operation("cudaDeviceSynchronize", 1, 0),
        # Kernels have entries of their own, and a marked region spans several.
        operation("nvjet_gemm", 20, 600e3, "CUDA"),
        operation("flash_bwd_kernel", 2, 100e3, "CUDA"),
        operation("vectorized_add", 40, 300e3, "CUDA"),
        operation("Optimizer.step", 2, 900e3, "CUDA", is_user_annotation=True),
    ]

    found = profile_of(operations, CUDA, 2)

    assert found["product_seconds"] == pytest.approx(0.35)
    assert found["busy_seconds"] == pytest.approx(0.5)
    assert (found["launches"], found["synchronisations"]) == (31, 2)
    assert found["busiest"][0] == ["aten::mm", pytest.approx(0.3), 10]


def test_the_share_outside_products_is_of_a_step_without_the_profiler() -> None:
    on_gpu = {"product_seconds": 0.35, "busy_seconds": 0.4, "launches": 805.0}

    # On a CPU all operations are slower under the profiler.
    on_cpu = {"product_seconds": 0.35, "busy_seconds": 1.4, "launches": None}
    found = {"gpu": {"profile": on_gpu}, "cpu": {"profile": on_cpu}, "none": {"profile": None}}
    assert profiles_of(found, dict.fromkeys(found, 0.7)) == {
        "gpu": {**on_gpu, "share_outside_products": 0.5},
        "cpu": {**on_cpu, "share_outside_products": 0.75},
    }


def test_what_is_said_of_a_gpu() -> None:
    profiled = {
        "share_outside_products": 0.25,
        "launches": 805.0,
        "synchronisations": 2.0,
        "busiest": [["aten::mm", 0.0125, 96.0]],
    }
    result = {"mfu": {"ours": 0.345, "transformers": None}, "profile": {"ours": profiled}}

    short = [
        "fraction of the device's peak, tidybert: 34.5%",
        "time outside products, tidybert: 25.0%",
    ]
    assert list(remarks_of(result, "a step", in_full=False)) == short
    assert list(remarks_of(result, "a step", in_full=True)) == [
        *short,
        "a step, tidybert: 805 kernel launches, 2 synchronisations",
        "      12.500 ms       96 times  aten::mm",
    ]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        # Nine steps' times are two windows, from the second step on.
        ([1.0] * 59, 9),
        # The first window whose median is within 3% of the next one's begins with the tenth time.
        ([5.0, 4.0, 3.0, 2.0, 1.5, 1.3, 1.2, 1.1, 1.08, 1.06] + [1.0] * 49, 18),
        # Never stable: it stops at a bound, and half of few steps count.
        ([1.1**-n for n in range(59)], MOST_WARM_UP_STEPS),
        ([1.1**-n for n in range(9)], 5),
        ([1.0] * 3, UNTIMED_STEPS),
    ],
)
def test_a_gpus_warm_up_ends_when_steps_take_as_long_as_before(
    times: list[float], expected: int
) -> None:
    assert warm_up_steps(times, CUDA) == expected
    assert warm_up_steps(times, CPU) == UNTIMED_STEPS
