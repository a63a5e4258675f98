"""Measurements: sides in turn, each in a process of its own, and their medians and ratios.

A process of its own has its own peak memory.  The module that measures ends with
``answer(function)``, and ``run_apart`` starts it with ``python -m``.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tidybert.errors import TidyBertError

UNTIMED_STEPS: Final = 3
"""The first steps of a training, in which libraries choose kernels and fetch memory."""

Samples = Mapping[str, Mapping[str, Sequence[float]]]
"""By side and by quantity, one value a round."""


def in_turn(sides: Sequence[str], number: int) -> Sequence[str]:
    """The order of the sides in a round: the first side begins even rounds and ends odd ones."""
    return sides if number % 2 == 0 else sides[::-1]


def take_rounds(
    sides: Sequence[str],
    rounds: int,
    measure: Callable[[str], tuple[Mapping[str, float], str]],
    report: Callable[[str], None],
) -> Samples:
    """Measure every side once a round.

    Args:
        measure: from a side to its values by quantity, and the rate that ``report`` shows.
    """
    samples: dict[str, dict[str, list[float]]] = {side: {} for side in sides}
    for number in range(rounds):
        for side in in_turn(sides, number):
            values, rate = measure(side)
            for name, value in values.items():
                samples[side].setdefault(name, []).append(value)
            report(f"round {number + 1} of {rounds}: {side} {rate}")
    return samples


def summarize(samples: Samples) -> dict[str, Any]:
    """The samples, their medians by side, and the first side's ratios to the second.

    A ratio is the median over the rounds; one side alone has none.
    """
    first, second = [*samples.values(), {}][:2]
    return {
        "samples": samples,
        "medians": {
            side: {name: statistics.median(values) for name, values in quantities.items()}
            for side, quantities in samples.items()
        },
        "ratios": {
            name: statistics.median(
                mine / other for mine, other in zip(first[name], values, strict=True)
            )
            for name, values in second.items()
        },
    }


def run_apart(module: str, side: str, work: Mapping[str, Any], threads: int | None) -> Any:
    """Call the function that ``module`` answers with on (side, work), and add "peak_mib".

    Where the work's "device" is a GPU, the process sees that one alone, as "cuda".  Raises
    TidyBertError with the end of the process's stderr where it fails.
    """
    # A waiting thread that spins takes the core from the thread that it waits for.
    environment = {"OMP_WAIT_POLICY": "passive", **os.environ, "TOKENIZERS_PARALLELISM": "false"}
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    kind, _, number = str(work.get("device", "cpu")).partition(":")
    if kind == "cuda":
        # With several GPUs transformers' Trainer would divide its batches among them.
        environment["CUDA_VISIBLE_DEVICES"] = _visible(int(number or 0))
        work = {**work, "device": "cuda"}
    command = [sys.executable, "-m", module, side, json.dumps(work)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TidyBertError(f"the {side} side failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _visible(number: int) -> str:
    """What CUDA_VISIBLE_DEVICES calls the GPU that this process sees as ``number``."""
    names = [each for each in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if each]
    return names[number] if number < len(names) else str(number)


def answer(function: Callable[[str, dict[str, Any]], Mapping[str, Any]]) -> None:
    """Run in the process that was started: print ``function(side, work)`` as one line of JSON."""
    with open(os.dup(1), "w") as stream:  # noqa: PTH123
        # transformers also prints to stdout, where only the answer may be.
        os.dup2(2, 1)
        result = function(sys.argv[1], json.loads(sys.argv[2]))
        peak = gpu_peak_mib() or peak_mib()
        print(json.dumps({**result, "peak_mib": round(peak)}), file=stream)


def gpu_peak_mib() -> float | None:
    """The most that PyTorch's allocator gave out on the GPU so far, in MiB; None without a GPU."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    return float(torch.cuda.max_memory_allocated()) / 2**20


def peak_mib(process: int | str = "self") -> float:
    """The largest resident memory of this process so far, in MiB; of another one on Linux alone."""
    # On Linux ru_maxrss includes the parent's memory at the start; VmHWM does not.
    status = Path(f"/proc/{process}/status")
    lines = status.read_text().splitlines() if status.exists() else []
    for line in lines:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 1024
