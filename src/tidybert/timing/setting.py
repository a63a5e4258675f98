"""The setting of the benches: their sides and their texts.

The data folder is the environment's TIDYBERT_DATA, or ../shared/data.
"""

import csv
import importlib.util
import lzma
import os
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Final

from tidybert.catalog import find_model
from tidybert.configuration import BertConfig
from tidybert.errors import UsageError, param
from tidybert.files.read_options import PUBLISHED_LAYOUTS, ReadOptions
from tidybert.model_files import CONFIG_FILE

SIDES: Final = ("ours", "transformers")
TICKETS: Final = "bundled tickets"


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


def sst2_or_tickets(split: str) -> tuple[str, str, ReadOptions]:
    """(name, path, options) of SST-2's train or dev split, else of the bundled tickets."""
    path = _data_folder() / "glue" / "SST-2" / f"{split}.tsv"
    if path.exists():
        return f"SST-2 {split}", str(path), PUBLISHED_LAYOUTS["glue/SST-2/*.tsv"]
    return TICKETS, str(_tickets()), ReadOptions(text="text", label="label")


def find_lines(limit: int = 80_000) -> tuple[str, list[str]]:
    """(source, lines) of English Wikipedia, else of the bundled tickets, without blank lines."""
    corpus = _data_folder() / "corpus" / "wiki-core-00.txt.xz"
    if corpus.exists():
        with lzma.open(corpus, "rt", encoding="utf-8") as file:
            lines = (line.rstrip("\n") for line in file)
            return str(corpus), list(islice(filter(None, lines), limit))
    with _tickets().open(encoding="utf-8", newline="") as file:
        return TICKETS, [row["text"] for row in islice(csv.DictReader(file), limit)]


def _data_folder() -> Path:
    return Path(os.environ.get("TIDYBERT_DATA", "../shared/data"))


def _tickets() -> Path:
    return Path(str(resources.files("tidybert") / "resources" / "tickets" / "train.csv"))
