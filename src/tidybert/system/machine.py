"""This machine's processor, and the versions of what runs on it; loads no torch."""

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tidybert.system.cores import available_cores


def machine() -> dict[str, Any]:
    """The processor's name and how many cores this process may use."""
    name = platform.processor() or platform.machine()
    described = Path("/proc/cpuinfo")
    if described.exists():
        for line in described.read_text().splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    return {"cpu": name, "cores": available_cores()}


def versions(*packages: str) -> dict[str, str | None]:
    """The versions of Python and of packages; None for one that is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found
