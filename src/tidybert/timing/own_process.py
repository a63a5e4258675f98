"""A measurement in a process of its own, whose peak memory is then its own.

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
    """What the function that ``module`` answers with makes of (side, work), with "peak_mib" added.

    Raises TidyBertError with the end of what the process said on stderr where it fails.
    """
    # A thread that spins while it waits takes the core from the one it waits for.
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
        # What transformers prints to stdout must not stand in the answer's way.
        os.dup2(2, 1)
        result = function(sys.argv[1], json.loads(sys.argv[2]))
        print(json.dumps({**result, "peak_mib": round(peak_mib())}), file=stream)


def peak_mib() -> float:
    """The most resident memory that this process has had, in MiB."""
    # On Linux ru_maxrss begins at what the parent held, VmHWM at nothing.
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    for line in lines:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 1024
