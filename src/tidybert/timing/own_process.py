"""Measurements in processes of their own, so that each has its own peak memory.

The module that measures ends with ``answer(function)``, and ``run_apart`` starts it with
``python -m``.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tidybert.errors import TidyBertError


def run_apart(module: str, side: str, work: Mapping[str, Any], threads: int | None) -> Any:
    """Call the function that ``module`` answers with on (side, work), and add "peak_mib".

    Raises TidyBertError with the end of the process's stderr where it fails.
    """
    # A waiting thread that spins takes the core from the thread that it waits for.
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive", "TOKENIZERS_PARALLELISM": "false"}
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    command = [sys.executable, "-m", module, side, json.dumps(work)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TidyBertError(f"the {side} side failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def answer(function: Callable[[str, dict[str, Any]], Mapping[str, Any]]) -> None:
    """Run in the process that was started: print ``function(side, work)`` as one line of JSON."""
    with open(os.dup(1), "w") as stream:  # noqa: PTH123
        # transformers also prints to stdout, where only the answer may be.
        os.dup2(2, 1)
        result = function(sys.argv[1], json.loads(sys.argv[2]))
        print(json.dumps({**result, "peak_mib": round(peak_mib())}), file=stream)


def peak_mib() -> float:
    """The largest resident memory of this process so far, in MiB."""
    # On Linux ru_maxrss includes the parent's memory at the start; VmHWM does not.
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    for line in lines:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 1024
