"""What the benches share: their sides, the length of texts, the machine and its versions."""

import importlib.util
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from tidybert.catalog import find_model
from tidybert.configuration import BertConfig
from tidybert.errors import UsageError, param
from tidybert.model_files import CONFIG_FILE

SIDES: Final = ("ours", "transformers")
PACKAGES: Final = ("tidybert", "torch", "transformers", "tokenizers")


def sides_against(against: str | None) -> tuple[str, ...]:
    """The sides of a bench; UsageError where ``against`` is unknown or not installed."""
    if against is None:
        return SIDES[:1]
    if against != "transformers":
        raise UsageError(f"{param('against', against)}: expected transformers")
    for package in ("transformers", "accelerate"):
        if importlib.util.find_spec(package) is None:
            raise UsageError(
                f"{param('against', against)} needs {package}, which is not installed: "
                "pip install 'tidybert[bench]'"
            )
    return SIDES


def max_seq_length_for(model: str) -> int:
    """128 tokens, or fewer where MODEL has fewer positions; raises as ``find_model`` does."""
    config = BertConfig.from_file(find_model(model) / CONFIG_FILE)
    return min(128, config.max_position_embeddings)


def machine() -> dict[str, Any]:
    """The processor's name and how many cores this process may use."""
    name = platform.processor() or platform.machine()
    described = Path("/proc/cpuinfo")
    if described.exists():
        for line in described.read_text().splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"cpu": name, "cores": cores}


def versions() -> dict[str, str | None]:
    """The versions of Python and of the timed packages; None for one that is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found
