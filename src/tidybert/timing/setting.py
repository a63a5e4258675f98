"""What the benches share: the data they take by default, turns, medians, and the machine."""

import importlib.util
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from importlib import resources
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from tidybert.catalog import find_model
from tidybert.configuration import BertConfig
from tidybert.errors import UsageError, param
from tidybert.files.read_options import PUBLISHED_LAYOUTS, ReadOptions
from tidybert.model_files import CONFIG_FILE

SIDES: Final = ("ours", "transformers")
PACKAGES: Final = ("tidybert", "torch", "transformers", "tokenizers")

Samples = Mapping[str, Mapping[str, Sequence[float]]]
"""By side and by quantity, one value a round."""


def sst2_or_tickets(split: str) -> tuple[str, str, ReadOptions]:
    """(name, path, options) of SST-2's train or dev split, else of the bundled tickets.

    The data folder is the environment's TIDYBERT_DATA, or ../shared/data.
    """
    data = Path(os.environ.get("TIDYBERT_DATA", "../shared/data"))
    path = data / "glue" / "SST-2" / f"{split}.tsv"
    if path.exists():
        return f"SST-2 {split}", str(path), PUBLISHED_LAYOUTS["glue/SST-2/*.tsv"]
    tickets = resources.files("tidybert") / "resources/tickets/train.csv"
    return "bundled tickets", str(tickets), ReadOptions(text="text", label="label")


def sides_against(against: str | None) -> tuple[str, ...]:
    """The sides of a bench; UsageError where the other is unknown or not installed."""
    if against is None:
        return SIDES[:1]
    if against != "transformers":
        raise UsageError(f"{param('against', against)}: expected transformers, or nothing")
    for package in ("transformers", "accelerate"):
        if importlib.util.find_spec(package) is None:
            raise UsageError(
                f"{param('against', against)} needs {package}, which is not installed: "
                "pip install 'tidybert[bench]'"
            )
    return SIDES


def in_turn(sides: Sequence[str], number: int) -> Sequence[str]:
    """The order of the sides in a round: ours first, then ours last, and so on."""
    return sides if number % 2 == 0 else sides[::-1]


def max_seq_length_for(model: str) -> int:
    """128 tokens, or as many as the MODEL has positions for; what ``find_model`` raises."""
    config = BertConfig.from_file(find_model(model) / CONFIG_FILE)
    return min(128, config.max_position_embeddings)


def summarize(samples: Samples) -> dict[str, Any]:
    """The samples, their medians by side, and "ratios": ours by theirs, medians over the rounds."""
    medians = {
        side: {name: statistics.median(values) for name, values in quantities.items()}
        for side, quantities in samples.items()
    }
    ours, theirs = samples["ours"], samples.get("transformers", {})
    ratios = {
        name: statistics.median(
            mine / other for mine, other in zip(ours[name], values, strict=True)
        )
        for name, values in theirs.items()
    }
    return {"samples": samples, "medians": medians, "ratios": ratios}


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
    """Of Python and of the packages that are timed; None for one that is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found
