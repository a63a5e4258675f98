"""Measurements in processes of their own, which have their own threads and peak memory."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from tidybert.errors import TidyBertError

ROOT: Final = Path(__file__).parents[2]


def run_apart(
    function: Callable[[str, dict[str, Any]], Mapping[str, Any]],
    side: str,
    work: Mapping[str, Any],
    threads: int | None,
) -> dict[str, Any]:
    """Call a module's function with (side, work) in another process, and add "peak_mib".

    Where the work's "device" is a GPU, the process sees only that one, as "cuda".  Raises
    TidyBertError with the end of the process's stderr where it fails.
    """
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    # A waiting thread that spins takes the core from the thread that it waits for.
    environment = {"OMP_WAIT_POLICY": "passive", **os.environ, "PYTHONPATH": path}
    environment["TOKENIZERS_PARALLELISM"] = "false"
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    kind, _, number = str(work.get("device", "cpu")).partition(":")
    if kind == "cuda":
        # With several GPUs transformers' Trainer would divide its batches among them.
        seen = [each for each in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if each]
        at = int(number or 0)
        environment["CUDA_VISIBLE_DEVICES"] = seen[at] if at < len(seen) else str(at)
        work = {**work, "device": "cuda"}
    command = [sys.executable, "-m", "benchmarks.harness.processes"]
    command += [function.__module__, function.__name__, side, json.dumps(work)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TidyBertError(f"the {side} side failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def in_environment(python: str, program: str, given: Any) -> Any:
    """Run a program in an environment of other packages; it reads and prints JSON."""
    done = subprocess.run(
        [python, "-c", program], input=json.dumps(given), capture_output=True, text=True
    )
    if done.returncode:
        raise TidyBertError(f"{python} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def gpu_peak_mib() -> float | None:
    """The most that PyTorch's allocator gave out on the GPU so far, in MiB; None without a GPU."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    return float(torch.cuda.max_memory_allocated()) / 2**20


def memory_mib(process: int | str = "self", field: str = "VmHWM") -> float:
    """The largest resident memory of a process so far, in MiB; with "VmRSS" that of now.

    Other processes than this one, and VmRSS, need Linux.
    """
    # On Linux ru_maxrss includes the parent's memory at the start; VmHWM does not.
    status = Path(f"/proc/{process}/status")
    for line in status.read_text().splitlines() if status.exists() else ():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 1024


def main() -> None:
    """In the process that was started: print what the function returns, as one line of JSON."""
    module, name, side, work = sys.argv[1:]
    with open(os.dup(1), "w") as stream:  # noqa: PTH123
        # transformers also prints to stdout, where only the answer may be.
        os.dup2(2, 1)
        result = getattr(import_module(module), name)(side, json.loads(work))
        peak = gpu_peak_mib() or memory_mib()
        print(json.dumps({**result, "peak_mib": round(peak)}), file=stream)


if __name__ == "__main__":
    main()
