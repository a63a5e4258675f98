"""Steps of training timed: what fine-tuning and pre-training share.

Each measurement is a process of its own, so that its peak memory is its own and neither side warms
the other's caches.  A side's function returns {"step_seconds" (from the end of one step to that of
the next, so one fewer than timed steps), "step_counts" (what each step read), "peak_rate" (of the
device, None where not known), "threads", "profile" (see StepClock)}.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch

from benchmarks.harness.processes import run_apart
from benchmarks.harness.rounds import (
    FLASH_SIDE,
    SIDES,
    add_device,
    at_least,
    attention_of,
    print_speed,
    speed_parser,
    summarize,
    take_rounds,
)
from benchmarks.harness.step_clock import PROFILED_STEPS, remarks_of, warm_up_steps, with_share


def time_steps(
    function: Callable[[str, dict[str, Any]], Mapping[str, Any]],
    work: Any,
    unit: str,
    *,
    sides: Sequence[str],
    rounds: int,
    untimed: int | None = None,
) -> dict[str, Any]:
    """Time the steps of a work (FinetuneWork, PretrainWork) after a warm-up.

    ``samples``, ``medians`` and ``ratios`` are as ``summarize`` gives them, of the quantities
    UNIT_per_second, seconds_per_step and peak_mib.  ``found`` is all that each side's function
    returned in its last round; ``warm_up_steps`` and ``profile`` are of that round too.  ``mfu`` is
    each side's share of the device's peak; None where the peak is not known.

    Args:
        function: measures a side, in a process of its own.
        unit: what a step reads, "examples" or "tokens".
        untimed: the first steps that do not count; None for a warm-up.
    """
    found: dict[str, dict[str, Any]] = {}
    warm_up: dict[str, int] = {}

    def one_round(side: str) -> tuple[Mapping[str, float], str]:
        found[side] = one = run_apart(function, side, asdict(work), work.threads)
        first = untimed or warm_up_steps(one["step_seconds"], torch.device(work.device))
        warm_up[side] = first
        seconds = one["step_seconds"][first - 1 :]
        rate = sum(one["step_counts"][first : first + len(seconds)]) / sum(seconds)
        return {
            f"{unit}_per_second": rate,
            "seconds_per_step": sum(seconds) / len(seconds),
            "peak_mib": one["peak_mib"],
        }, f"{rate:,.0f} {unit}/s"

    summary = summarize(take_rounds(sides, rounds, one_round))
    medians = summary["medians"]
    peak = found[sides[0]]["peak_rate"]
    return {
        "work": asdict(work),
        "rounds": rounds,
        "threads": found[sides[0]]["threads"],
        **summary,
        "warm_up_steps": warm_up,
        "mfu": {
            side: one[f"{unit}_per_second"] / peak if peak else None
            for side, one in medians.items()
        },
        "profile": {
            side: with_share(one["profile"], medians[side]["seconds_per_step"])
            for side, one in found.items()
            if one.get("profile")
        },
        "found": found,
    }


def training_parser(
    doc: str | None, *, steps: int, least: int, what: str, dropout: float | None
) -> argparse.ArgumentParser:
    """The flags of both trainings."""
    parser = speed_parser(doc, others=(*SIDES[1:], FLASH_SIDE))
    add_device(parser)
    parser.add_argument("--steps", type=at_least(least), default=steps, help=what)
    parser.add_argument("--precision", default="auto", help="auto, float32 or bfloat16")
    parser.add_argument("--dropout", type=float, default=dropout, help="on both sides")
    return parser


def settings_of(given: argparse.Namespace) -> dict[str, Any]:
    """The settings of a work that these flags say."""
    return {
        "precision": given.precision,
        "device": given.device,
        "threads": given.threads,
        "attention": attention_of(given.against),
        "profiled_steps": PROFILED_STEPS * given.profiled,
    }


def print_training(
    title: str,
    result: Mapping[str, Any],
    rate: tuple[str, str],
    remarks: Sequence[str],
    given: argparse.Namespace,
) -> None:
    """Print what ``time_steps`` found; ``rate`` is the name and the quantity of the first row."""
    memory = "peak MiB" if given.device == "cpu" else "peak MiB of the GPU"
    rows = dict([rate, ("seconds a step", "seconds_per_step"), (memory, "peak_mib")])
    remarks = [*remarks, *remarks_of(result, "a step", in_full=given.profile)]
    print_speed(title, result, rows, remarks, as_json=given.json)
